"""Realistic faults, each with the test that must find it. By hand: `python tests/faults.py [NAME …]`.

A copy of the repository gets one fault at a time; its finder must fail there, and pass without it. A finder that does
not end is one that does not find: a fault may make a loop endless, and its test must bound it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SECONDS = 120.0
TIERS = {"default": "not slow and not full and not real and not metal", "slow": "slow"}
LEFT_BEHIND = shutil.ignore_patterns(".git", ".venv", "venv", "__pycache__", ".*_cache", "build", "dist")


class Fault(NamedTuple):
    """`old` occurs once in `file` of specdec_cli, and becomes `new`; `finder` names items of `tier`."""

    name: str
    file: str
    old: str
    new: str
    finder: str
    tier: str = "default"


FAULTS = (
    # Two tokenizers.
    Fault(
        "a translated token that the draft was not fed stays in its caches",
        "engine/drafters/stepwise.py",
        "if context[at] not in self._tables.said), last)",
        "if context[at] < 0), last)",
        "unit/engine/drafters/test_translated.py"
        "::test_what_it_drafted_without_a_word_for_it_is_read_again_as_it_is_spelled",
    ),
    Fault(
        "what a translated draft cannot say has the odds of its first id",
        "engine/translated.py",
        "mx.where(self.mute, -mx.inf, mx.take(logits, self.ids, axis=-1))",
        "mx.take(logits, self.ids, axis=-1)",
        "unit/engine/drafters/test_translated.py::test_its_law_lies_on_what_it_can_say_and_is_one",
    ),
    # Requests that share passes.
    Fault(
        "a plain step is measured in a row of a shared pass",
        "session/meter.py",
        "if self.target.row is None and self._due()",
        "if self._due()",
        "unit/apps/serve/test_sharing.py::test_no_plain_step_is_measured_in_a_row_of_a_shared_pass",
    ),
    # Rules, rounds and caches.
    Fault(
        "one more accepted where K > 3",
        "engine/sampling/rejection.py",
        "accepted = mx.min(_equal_before(draft_tokens, targets[:-1]))",
        "accepted = mx.min(_equal_before(draft_tokens, targets[:-1]))\n"
        "    accepted = mx.minimum(accepted + (draft_tokens.size > 3), draft_tokens.size)",
        "laws/test_plain_words.py::test_every_drafter_works_under_every_rule[model-coupled]",
    ),
    Fault(
        "one token more than max_tokens",
        "engine/drafters/drafters.py",
        "min(left - 1 - in_flight, MAX_DRAFT)",
        "min(left - in_flight, MAX_DRAFT)",
        "unit/engine/test_decode.py::test_loop_invariants_hold_for_any_drafter",
    ),
    Fault(
        "coupled noise of the next position in plain rounds",
        "engine/sampling/acceptance.py",
        "noise = self._sampler.target_noise(position, len(draft) + 1)",
        "noise = self._sampler.target_noise(position + (not len(draft)), len(draft) + 1)",
        "laws/test_coupled.py::test_penalties_count_each_token_once_whatever_became_of_the_draft",
    ),
    Fault(
        "one layer is not rolled back",
        "engine/cache/rollback.py",
        "        for part in parts:\n            # Some architectures",
        "        for part in parts[1:]:\n            # Some architectures",
        "unit/engine/cache/test_rollback.py",
    ),
    Fault(
        "the draft keeps what an edit took back",
        "engine/drafters/stepwise.py",
        "            self._draft.reuse(ids)",
        "            self._draft.commit(ids, len(ids) - 1)",
        "laws/test_draft_context.py::test_a_conversation_with_a_draft_of_the_last_tokens_is_plain_decoding[plain-plain-9-16]",
        "slow",
    ),
    Fault(
        "top-p weighs from the least value on",
        "engine/sampling/cuts.py",
        "best = values[:, -1:]",
        "best = values[:, :1]",
        "unit/engine/sampling/test_warps.py::test_every_combination_of_cuts_equals_a_full_sort",
    ),
    Fault(
        "top-p counts a value among those that beat it",
        "engine/sampling/cuts.py",
        "mx.cumsum(masses, axis=-1)",
        "mx.cumsum(masses, axis=-1, inclusive=False)",
        "unit/engine/sampling/test_warps.py::test_every_combination_of_cuts_equals_a_full_sort",
    ),
    Fault(
        "block's residual of the row before",
        "engine/sampling/rejection.py",
        "self.weight[accepted][:, None]",
        "self.weight[mx.maximum(accepted - 1, 0)][:, None]",
        "unit/engine/sampling/test_rejection.py",
    ),
    Fault(
        "a window one position short",
        "engine/cache/window.py",
        "window = min(window_size or self.max_size, self.max_size)",
        "window = min(window_size or self.max_size, self.max_size) - 1",
        "unit/engine/cache/test_cache_kinds.py",
    ),
    Fault(
        "log-probabilities of the row before",
        "engine/sampling/acceptance.py",
        "TokenLogprob(token, chosen[i], ",
        "TokenLogprob(token, chosen[i - 1], ",
        "unit/engine/sampling/test_sampler.py",
    ),
    Fault(
        "a head's states one token late",
        "engine/heads/cached_head.py",
        "begin = self.cached + 1",
        "begin = self.cached",
        "unit/engine/heads/test_families.py",
    ),
    Fault(
        "a recurrent state one token short",
        "engine/cache/rollback.py",
        "self._recorder.recompute(fed.recording, kept - fed.start)",
        "self._recorder.recompute(fed.recording, kept - fed.start - (kept - fed.start > 3))",
        "unit/engine/cache/test_rollback.py::test_a_state_taken_back_is_that_of_the_kept_tokens_and_reads_no_projection_again",
    ),
    Fault(
        "a draft's penalties without its own tokens",
        "engine/sampling/sampler.py",
        "counts = counts.add(mx.concatenate(list(ahead)))",
        "counts = self._counts",
        "unit/engine/drafters/test_model.py::test_penalties_of_a_draft_count_its_own_tokens",
    ),
    # H1 to H11: no test found them.
    Fault(
        "H1 noise numbered by the end of a round",
        "engine/sampling/acceptance.py",
        "self._sampler.noise, position))",
        "self._sampler.noise, position + len(draft)))",
        "laws/test_engine_law.py::test_whole_answers_of_five_tokens_follow_the_target",
    ),
    Fault(
        "H2 a lookup longer than the answer may be",
        "engine/planning/policy.py",
        "return replace(chosen, k=min(chosen.k, s.most)) if s.most else",
        "return chosen if s.most else",
        "laws/test_predictions.py::test_a_guess_that_is_longer_than_the_answer_may_be_adds_no_token",
    ),
    Fault(
        "H3 the draft reads N - 1 tokens",
        "engine/model.py",
        "begin = max(len(context) - (self.recent or len(context)), 0)",
        "begin = max(len(context) - (self.recent - 1 if self.recent else len(context)), 0)",
        "laws/test_draft_context.py::test_a_draft_reads_the_last_n_tokens_and_anew_where_twice_as_many_are_held",
    ),
    Fault(
        "H4 the draft holds 2 N + 1 tokens",
        "engine/model.py",
        "len(context) - self.origin <= 2 * recent",
        "len(context) - self.origin <= 2 * recent + 1",
        "laws/test_draft_context.py::test_a_draft_reads_the_last_n_tokens_and_anew_where_twice_as_many_are_held",
    ),
    Fault(
        "H5 the last chunk that a draft read is not told",
        "engine/pipeline.py",
        "proposed.read_tokens += read - before",
        "proposed.read_tokens += (read - before) * (read < tokens - 1)",
        "laws/test_draft_context.py::test_a_draft_reads_the_last_n_tokens_and_anew_where_twice_as_many_are_held",
    ),
    Fault(
        "H7 costs of another draft context are taken for the same",
        "session/load.py",
        " · draft context {pair.draft_context} · {where}",
        " · {where}",
        "unit/session/test_load.py::test_costs_are_kept_apart_by_models_revisions_cache_precision_and_draft_context",
    ),
    Fault(
        "H8 a head gets the states of rejected tokens",
        "engine/pipeline.py",
        "self._hidden[:emitted]",
        "self._hidden[-emitted:]",
        "laws/test_draft_context.py::test_after_a_rejection_a_draft_is_that_of_one_that_read_the_text_anew[head]",
    ),
    Fault(
        "H9 a verdict on memory without the draft",
        "pairs/fit.py",
        "return self.sizes(self.tokens)",
        "return self.sizes(self.tokens)[:1]",
        "unit/session/test_load.py::test_a_draft_that_does_not_fit_beside_its_target_is_refused",
    ),
    Fault(
        "H10 a prompt counts once an answer",
        "apps/serve/http/dialect.py",
        "answers[:: answers[0].ask.choices]",
        "answers",
        "unit/apps/serve/http/test_replies.py::test_the_prompt_is_counted_once_however_many_answers_there_are",
    ),
    Fault(
        "H11 no last line where usage is streamed",
        "apps/serve/http/completions.py",
        'return (self.event([], **sums) if sums else b"") + b"data: [DONE]\\n\\n"',
        'return self.event([], **sums) if sums else b"data: [DONE]\\n\\n"',
        "unit/apps/serve/http/test_replies.py::test_the_prompt_is_counted_once_however_many_answers_there_are",
    ),
    # Sessions, texts and measurements.
    Fault(
        "attempts share a seed",
        "session/session.py",
        "else attempt_seed(request.seed, request.attempt)",
        "else request.seed",
        "laws/test_chat_turns.py::test_attempts_are_equal_for_every_k_and_drafter_and_differ_from_each_other",
    ),
    Fault(
        "one token more than the context holds",
        "session/session.py",
        "return min(self.request.max_tokens, limit - len(prompt))",
        "return min(self.request.max_tokens, limit + 1 - len(prompt))",
        "unit/session/test_session.py",
    ),
    Fault(
        "a cancelled reply reads on",
        "session/session.py",
        "if halted := cancelled():",
        "if (halted := cancelled()) and target.length == len(context) - 1:",
        "unit/session/test_session.py",
    ),
    Fault(
        "a stop string over three rounds",
        "models/text.py",
        "max((overlap(self._held, stop) for stop in self._stops), default=0)",
        "max((overlap(text, stop) for stop in self._stops), default=0)",
        "unit/session/test_writer.py",
    ),
    Fault(
        "the last character is lost",
        "session/text.py",
        "self._stops.feed(self._stream.finish())",
        'self._stops.feed("")',
        "unit/session/test_writer.py",
    ),
    Fault(
        "an interval half as wide",
        "core/speedup.py",
        "sqrt(variance * weight)",
        "sqrt(variance * weight) / 2",
        "unit/core/test_speedup.py",
    ),
    Fault(
        "what drafted rounds lose is not held against trying",
        "engine/planning/history.py",
        "self._pay(len(round.emitted) - (round.draft_seconds + round.verify_seconds) / plain)",
        "self._pay(0.0)",
        "unit/engine/planning/test_history.py",
    ),
    Fault(
        "costs of the future are believed",
        "session/drafting.py",
        'if kept and 0 <= self.now() - float(kept["at"]) <= BELIEVED_SECONDS:',
        'if kept and self.now() - float(kept["at"]) <= BELIEVED_SECONDS:',
        "unit/session/test_drafting.py",
    ),
    Fault(
        "costs of another cache precision are taken for the same",
        "session/load.py",
        " · kv {fit.kv_bits or 'full'}",
        "",
        "unit/session/test_load.py::test_costs_are_kept_apart_by_models_revisions_cache_precision_and_draft_context",
    ),
    # Files, pairs, conversations and clients.
    Fault(
        "a field of the JSON renamed",
        "core/events.py",
        'values = {**values.pop("round"), **values}',
        'values = {**values.pop("round"), "next_text": values.pop("next_piece"), **values}',
        "unit/core/test_events.py",
    ),
    Fault(
        "packaged pairs replace the user's",
        "pairs/registry.py",
        "{**ours.pairs, **theirs.pairs}",
        "{**theirs.pairs, **ours.pairs}",
        "unit/pairs/test_registry.py",
    ),
    Fault(
        "added tokens are not compared",
        "models/tokenizer.py",
        "token_bytes(self._inner.get_vocab(), self._added, self._spelling)",
        "token_bytes({t: i for t, i in self._inner.get_vocab().items() if t not in self._added}, (), self._spelling)",
        "unit/pairs/test_check.py",
    ),
    Fault(
        "eos is not compared",
        "models/vocab.py",
        "    if ours == theirs or ours is None or theirs is None:\n",
        "    if True:\n",
        "unit/models/test_vocab.py",
    ),
    Fault(
        "no mask on the first token",
        "engine/sampling/sampler.py",
        "if self._constraint:\n            logits = apply_mask(logits, self._masks(self._constraint, logits, (",
        "if self._constraint and pending.size:\n"
        "            logits = apply_mask(logits, self._masks(self._constraint, logits, (",
        "laws/test_constrained.py",
    ),
    Fault(
        "a slot in use is shared",
        "apps/serve/conversations.py",
        "if near and not near.busy and self._continues",
        "if near and self._continues",
        "unit/apps/serve/test_conversations.py",
    ),
    Fault(
        "a row that goes leaves its place to nobody",
        "engine/cache/rows.py",
        "            self.keys[row : row + 1] = self.keys[source : source + 1]\n",
        "",
        "laws/test_batch.py::test_under_a_seed_each_draws_its_own",
    ),
    Fault(
        "a rejected token stays in a row of a shared pass",
        "engine/pipeline.py",
        "            self._target.take_back(len(round.draft) - round.accepted)\n",
        "            self._target.take_back(0)\n",
        "laws/test_batch.py::test_under_a_seed_each_draws_its_own",
    ),
    Fault(
        "who shares a pass tells nothing of its drafts before it drafts",
        "engine/planning/policy.py",
        "hoped, told = alike, own",
        "hoped = alike",
        "laws/test_batch.py::test_replies_begin_to_draft_together_where_one_alone_would_not",
    ),
    Fault(
        "those who share a pass do not count each other's rows",
        "engine/planning/policy.py",
        "passes[len(worths) * (k + 1) - 1]",
        "passes[k]",
        "unit/engine/planning/test_policy.py",
    ),
    Fault(
        "the longest conversation is taken",
        "apps/serve/conversations.py",
        "return kept.slot.reach(prompt), same",
        "return kept.length, same",
        "unit/apps/serve/test_conversations.py",
    ),
    Fault(
        "a transcript that failed leaves its draft",
        "core/jsonfile.py",
        "        Path(draft).unlink(missing_ok=True)\n",
        "        pass\n",
        "unit/session/test_conversation.py",
    ),
    Fault(
        "a small file that came altered is taken",
        "hub/download.py",
        "            if problem := _remove_altered(snapshot, file):\n",
        "            if file.is_weights and (problem := _remove_altered(snapshot, file)):\n",
        "unit/hub/test_pulling.py::test_one_flipped_byte_on_the_way_is_refused_with_the_files_name_and_never_speaks",
        "slow",
    ),
    Fault(
        "usage without the stop token",
        "apps/serve/http/answer.py",
        'return int(self.stats.get("emitted_tokens", 0))',
        "return len(self.finish.tokens) if self.finish else 0",
        "unit/apps/serve/http/test_clients.py::test_the_token_that_ends_an_answer_counts",
        "slow",
    ),
    Fault(
        "each step of a head learns from the first one's states",
        "engine/training.py",
        "chosen = rows[:, last - s - spoken : last - s]",
        "chosen = rows[:, last - 1 - spoken : last - 1]",
        "unit/apps/tune/test_heads.py::test_agreement_counts_the_guesses_before_the_first_wrong_one",
    ),
    Fault(
        "text like what is judged is learned from",
        "apps/tune/documents.py",
        "fresh = [one for one in others if one.name not in near]",
        "fresh = others",
        "unit/apps/tune/test_documents.py::test_a_judged_document_that_is_planted_among_the_others_is_found",
    ),
    Fault(
        "a gain within noise is kept",
        "apps/tune/figures.py",
        "        if self.acceptance.low <= 0:\n",
        "        if self.acceptance.high <= 0:\n",
        "unit/apps/tune/test_tuning.py",
    ),
    Fault(
        "a training that goes on has forgotten its averages",
        "engine/training.py",
        "        self._optimizer.state = tree_unflatten(part(STATE))\n",
        "",
        "unit/apps/tune/test_tuning.py"
        "::test_a_tuning_that_is_killed_in_any_phase_goes_on_where_it_was_to_the_same_verdict",
        "slow",
    ),
    Fault(
        "a full disk ends with 1",
        "core/errors.py",
        "return DoesNotFit(message, when_full or hint) if",
        "return SpecdecError(message, when_full or hint) if",
        "unit/command/test_streams.py::test_a_full_disk_under_stdout_is_said_with_exit_code_5",
        "slow",
    ),
    # What an adversary planted and no test found, in its words.
    Fault(
        "no column is kept to take a pass back",
        "engine/cache/rows.py",
        "max(self._first() - MAX_K, 0), 1 <<",
        "max(self._first(), 0), 1 <<",
        "unit/engine/cache/test_rows.py::test_just_after_room_was_made_a_row_of_a_full_window_leaves_with_the_pass_before_to_take_back",
    ),
    Fault(
        "a row that is fed nothing goes on with a state",
        "engine/cache/rows.py",
        "if all(fed):",
        "if True:",
        "unit/engine/cache/test_rows.py::test_a_row_that_is_fed_nothing_keeps_its_state",
    ),
    Fault(
        "a shorter draft's columns are taken for its tokens",
        "engine/cache/rows.py",
        "mx.where(places[row] < self.tokens[row], places[row], NOTHING)",
        "mx.where(mx.arange(places.shape[1]) < places.shape[1] - count, places[row], NOTHING)",
        "laws/test_batch.py::test_a_draft_whose_steps_others_shared_is_the_one_that_is_made_alone[qwen3]",
    ),
    Fault(
        "an empty state joins with the first row's",
        "engine/cache/rows.py",
        "_require_same(*([] if state is None else state.shape[1:] for state in (own, mine)))",
        "_require_same(*(state.shape[1:] for state in (mine if own is None else own, mine)))",
        "unit/engine/cache/test_rows.py::test_a_state_that_read_nothing_does_not_join",
    ),
    Fault(
        "mask left out where only the layer's own window hides",
        "engine/cache/rows.py",
        "min(tokens) >= held < window",
        "min(tokens) >= held",
        "unit/engine/cache/test_rows.py::test_full_caches_are_masked_where_only_the_layers_own_window_hides",
    ),
    Fault(
        "prompts read with others though a head needs states",
        "engine/batch.py",
        "alone = self.target.network.hidden.is_exposed or not self.target.trims",
        "alone = not self.target.trims",
        "laws/test_batch.py::test_a_prompt_is_never_read_with_others_where_a_head_reads_its_states",
    ),
    Fault(
        "rows may take twice the memory left",
        "apps/serve/running.py",
        "self._bytes(fitting) > room_bytes",
        "self._bytes(fitting) > 2 * room_bytes",
        "unit/apps/serve/test_sharing.py::test_with_a_byte_less_than_the_rows_need_the_longest_takes_turns",
    ),
    Fault(
        "a turn's time counts for the passes that are shared",
        "apps/serve/running.py",
        "self._sharing[self._in_turns].observe(False,",
        "self._sharing[self._in_turns].observe(True,",
        "unit/apps/serve/test_sharing.py::test_what_takes_less_time_a_token_is_kept_a_pass_for_all_or_a_turn_of_each",
    ),
    Fault(
        "prompt = context limit is taken on",
        "apps/serve/running.py",
        "prompt >= limit",
        "prompt > limit",
        "unit/apps/serve/test_scheduler.py::test_a_prompt_of_exactly_the_context_is_refused_and_one_token_less_is_answered",
    ),
    Fault(
        "each is charged a whole shared pass",
        "apps/serve/scheduler.py",
        "job.had_seconds += seconds / len(jobs)",
        "job.had_seconds += seconds",
        "unit/apps/serve/test_sharing.py::test_of_a_shared_pass_each_is_charged_its_part_beside_one_who_takes_turns",
    ),
    Fault(
        "a failed conversation is not forgotten",
        "apps/serve/scheduler.py",
        "                    kept.slot.forget()\n",
        "                    pass\n",
        "unit/apps/serve/test_scheduler.py::test_after_a_failure_nothing_of_the_conversation_is_gone_on_with",
    ),
    Fault(
        "room beside the running is not asked",
        "apps/serve/scheduler.py",
        "fits = handle.job.pair == self._pair_name and with_jobs(self._here.pair.fit, jobs).fits",
        "fits = handle.job.pair == self._pair_name",
        "unit/apps/serve/test_scheduler.py::test_two_that_fit_only_one_after_the_other_run_one_after_the_other",
    ),
    Fault(
        "waiting states of a head cut one too long",
        "engine/heads/cached_head.py",
        "kept = max(length - self.cached, 0)",
        "kept = max(length - self.cached + 1, 0)",
        "unit/engine/heads/test_families.py::test_after_a_cut_amid_states_that_wait_every_proposal_is_that_of_a_head_that_read_the_text",
    ),
    Fault(
        "what is forced may exceed max_tokens",
        "engine/planning/policy.py",
        "return Plan(FORCED.name, min(s.forced, s.most))",
        "return Plan(FORCED.name, s.forced)",
        "unit/engine/planning/test_policy.py::test_what_is_forced_is_cut_to_what_the_answer_may_have",
    ),
    Fault(
        "a slow moment's costs of drafting are believed for ever",
        "engine/planning/history.py",
        "self.costs.forget()",
        "pass",
        "unit/engine/planning/test_history.py",
    ),
    Fault(
        "a released draft's reading is not counted",
        "engine/planning/history.py",
        "self._released, self._unread = True, self._context",
        "self._released = True",
        "unit/engine/planning/test_history.py::test_a_released_draft_has_all_of_the_context_to_read_again",
    ),
    Fault(
        "a pid that is another's is killed",
        "system/servers.py",
        "        if not _is_free(file.fileno()):\n            os.kill",
        "        if True:\n            os.kill",
        "unit/system/test_servers.py::test_end_signals_nobody_whose_file_is_free",
    ),
    Fault(
        "parts of downloads under way are swept",
        "hub/download.py",
        "path.stat().st_mtime > ABANDONED_SECONDS",
        "path.stat().st_mtime > 0",
        "unit/hub/test_cached.py::test_parts_of_downloads_under_way_stay_and_those_of_killed_ones_go",
    ),
    Fault(
        "two models' bytes are not added",
        "hub/download.py",
        "if sum(needed.values()) > free:",
        "if max(needed.values()) > free:",
        "unit/hub/test_cached.py::test_two_models_that_fit_only_one_by_one_are_refused_together",
    ),
    Fault(
        "logprob −∞ is no JSON",
        "apps/serve/http/completions.py",
        "return max(logprob, -9999.0)",
        "return logprob",
        "unit/apps/serve/http/test_fields.py::test_a_logprob_of_nothing_is_a_number_of_json",
    ),
    Fault(
        "a near-duplicate is watched",
        "apps/tune/documents.py",
        "tuple(fresh[:second])",
        "tuple(others[:second])",
        "unit/apps/tune/test_documents.py::test_what_resembles_a_judged_document_is_not_watched_either",
    ),
    Fault(
        "a tuned draft is bound to the target alone",
        "pairs/tuned.py",
        'return found if draft is None else {**found, "draft": fingerprint(draft)}',
        "return found",
        "unit/pairs/test_fingerprint.py::test_each_of_the_weights_and_the_tokenizer_binds",
    ),
    Fault(
        "the draft's context bounds nothing",
        "pairs/limits.py",
        "for limit in (self.target, draft) if",
        "for limit in (self.target,) if",
        "unit/pairs/test_fit.py::test_the_shorter_context_of_target_and_draft_bounds_a_reply_that_drafts_with_it",
    ),
    Fault(
        "min_tokens one short for stop strings",
        "session/text.py",
        "if len(self._tokens) > self._least:",
        "if len(self._tokens) >= self._least:",
        "unit/session/test_writer.py::test_a_stop_string_that_ends_exactly_at_the_least_is_text",
    ),
    Fault(
        "who comes begins at the present",
        "apps/serve/scheduler.py",
        "        return self._before\n",
        "        return self.now\n",
        "unit/apps/serve/test_fair_clock.py::test_beside_a_long_turn_a_newcomer_has_as_long_before_it_waits",
    ),
    Fault(
        "answers 0 and 1 of one seed are alike",
        "engine/sampling/noise.py",
        "    if attempt == 0:\n",
        "    if attempt <= 1:\n",
        "unit/engine/sampling/test_sampler.py::test_each_further_answer_of_a_seed_has_a_seed_of_its_own",
    ),
    # An assistant, and what it sees of the target.
    Fault(
        "an assistant sees one position beyond the window",
        "engine/cache/shown.py",
        "part.max_size - 1",
        "part.max_size",
        "unit/engine/heads/test_assistant.py::test_every_proposal_is_mlx_vlms",
    ),
    Fault(
        "an assistant's later steps stand further on",
        "engine/heads/assistant.py",
        "offset=cache.position)",
        "offset=cache.position + step)",
        "unit/engine/heads/test_assistant.py::test_every_proposal_is_mlx_vlms",
    ),
    Fault(
        "an assistant sees the keys of rejected tokens",
        "engine/drafters/stepwise.py",
        "self._target.shown(len(context) - 1)",
        "self._target.shown(self._target.length)",
        "unit/engine/heads/test_assistant.py::test_every_proposal_is_mlx_vlms",
    ),
    # What was read, on disk.
    Fault(
        "an entry of other KV bits",
        "session/load.py",
        '"kv bits": str(kv_bits), ',
        "",
        "unit/session/test_disk_cache.py::test_other_bits_devices_and_windows_of_the_draft_are_other_fingerprints",
    ),
    Fault(
        "arrays that were altered",
        "session/disk_entries.py",
        'hashlib.file_digest(file, "sha256").hexdigest() != path',
        'not hashlib.file_digest(file, "sha256").hexdigest() and path',
        "laws/test_broken_bytes.py::test_what_is_kept_is_read_as_it_was_as_nothing_or_refused_in_two_lines",
    ),
    Fault(
        "a deleted chat whose reading stays",
        "session/kept_chats.py",
        "remove_chats([path.stem for path in paths])",
        "remove_chats([])",
        "unit/session/test_disk_cache.py::test_deleting_a_chat_deletes_what_was_read_of_it",
    ),
    Fault(
        "the draft's caches left out of an entry",
        "session/slot.py",
        'self.draft.restore(contents["draft"])',
        "self.draft.forget()",
        "laws/test_disk_cache.py::test_a_restored_conversation_answers_as_one_that_was_read[plain-False-3-None]",
    ),
)


def outcome(folder: Path, fault: Fault) -> str:
    """What pytest says of its finder in the copy: passed, failed, or why it says nothing."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-p", "no:cacheprovider", "-m", TIERS[fault.tier]]
    command += [f"tests/{item}" for item in fault.finder.split()]
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    log = folder / "finder.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            return f"no end within {SECONDS:.0f} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if code in (0, 1):
        return "failed" if code else "passed"
    last = log.read_text().strip().splitlines()[-1:]
    return f"pytest {code}: {' '.join(last)[:90]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults whose name contains it; all without")
    wanted = parser.parse_args().names
    faults = tuple(fault for fault in FAULTS if not wanted or any(name in fault.name for name in wanted))
    rows: list[tuple[str, str, float, str]] = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "repository"
        shutil.copytree(ROOT, folder, ignore=LEFT_BEHIND)
        sound: dict[str, str] = {}
        for fault in faults:
            path, began = folder / "specdec_cli" / fault.file, time.monotonic()
            text = path.read_text(encoding="utf-8")
            assert text.count(fault.old) == 1, fault
            if fault.finder not in sound:
                sound[fault.finder] = outcome(folder, fault)
            path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
            found = outcome(folder, fault)
            path.write_text(text, encoding="utf-8")
            if sound[fault.finder] != "passed":
                found = f"without it: {sound[fault.finder]}"
            verdict = "found" if found == "failed" else "not found"
            rows.append((fault.name, verdict, time.monotonic() - began, "" if verdict == "found" else found))
            print(f"{verdict:9}  {fault.name}  {rows[-1][3]}", flush=True)
    print(f"\n{'fault':60} {'verdict':9} {'s':>5}  why not")
    for name, verdict, seconds, why in rows:
        print(f"{name:60} {verdict:9} {seconds:5.0f}  {why}")
    missed = sum(verdict != "found" for _, verdict, _, _ in rows)
    print(f"{len(rows) - missed} of {len(rows)} faults found")
    return missed > 0


if __name__ == "__main__":
    sys.exit(main())
