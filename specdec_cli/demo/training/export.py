"""Writes one network as the folder that mlx-lm and transformers load: config, weights, tokenizer, template."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from corpus import END_OF_TEXT, SPECIAL_TOKENS, TURN_END
from network import Network

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)


def write_model(network: Network, tokenizer: Tokenizer, ends: tuple[int, int], folder: Path) -> None:
    """`ends` are the ids of end-of-text and end-of-turn. Weights are stored as float16 and declared float32."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.to(torch.float16).contiguous() for name, value in network.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    end_of_text, end_of_turn = ends
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    write_json(folder / "config.json", network.shape.config(end_of_text, end_of_turn))
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": TURN_END,
            "pad_token": END_OF_TEXT,
            "additional_special_tokens": list(SPECIAL_TOKENS),
            "model_max_length": network.shape.context,
            "clean_up_tokenization_spaces": False,
            "add_bos_token": False,
            "chat_template": CHAT_TEMPLATE,
        },
    )
    write_json(folder / "generation_config.json", {"eos_token_id": [end_of_turn, end_of_text], "do_sample": False})


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")
