"""Fields that change an answer, or ask for more than one, and that are not done: one table, for code and documents.

What one of them is when it changes nothing is let through: user interfaces send that by habit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NOTHING: tuple[Any, ...] = (None, False, "", [], {})
KEPT_NOTHING = "nothing is kept between requests; send the whole conversation"
SAMPLERS = "it is not done; temperature, top_k, top_p and min_p are"


@dataclass(frozen=True, slots=True)
class Refusal:
    """`fields` are refused for `reason`, unless their value is one of `neutral`."""

    fields: tuple[str, ...]
    reason: str
    neutral: tuple[Any, ...] = NOTHING


REFUSALS = (
    Refusal(("thread", "previous_response_id", "conversation", "session_params"), KEPT_NOTHING),
    Refusal(("background", "background_options"), "answers are not made in the background; use stream"),
    Refusal(("mcp_servers",), "no other server is called from here"),
    Refusal(("container",), "nothing is run here"),
    Refusal(("compaction",), "conversations are not summarized here; send a message that asks for a summary"),
    Refusal(("modalities", "output_modalities"), "the model writes text only", (None, [], ["text"])),
    Refusal(("stop_regex",), "an answer ends at texts; use stop"),
    Refusal(("allowed_token_ids",), "tokens are not chosen from a list; use a constraint, or logit_bias"),
    Refusal(("use_beam_search",), "only one candidate is followed; n gives several"),
    Refusal(("lora", "lora_path", "adapters"), "adapters are of a pair: specdec pairs add --adapter"),
    Refusal(("typical_p", "typical", "tfs_z", "tfs"), SAMPLERS, (None, 1)),
    Refusal(("xtc_probability", "dry_multiplier", "mirostat", "mirostat_mode", "top_a"), SAMPLERS, (None, 0)),
    Refusal(("dynatemp_range", "epsilon_cutoff", "eta_cutoff", "smoothing_factor"), SAMPLERS, (None, 0)),
    Refusal(("top_n_sigma", "nsigma"), SAMPLERS, (None, -1, 0)),
    Refusal(("no_repeat_ngram_size", "penalty_alpha"), SAMPLERS, (None, 0)),
    Refusal(("guidance_scale", "cfg_scale", "encoder_repetition_penalty", "num_beams"), SAMPLERS, (None, 0, 1)),
    Refusal(("include_stop_str_in_output",), "an answer ends before its stop text"),
    Refusal(("prompt_logprobs",), "tokens of a prompt are not scored"),
)
REFUSED = {field: row.reason for row in REFUSALS for field in row.fields}
NEUTRAL = {field: row.neutral for row in REFUSALS for field in row.fields}
