"""How commands are called: parse, build, hand over."""
