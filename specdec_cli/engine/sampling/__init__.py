"""From logits to tokens, and which draft tokens are accepted."""
