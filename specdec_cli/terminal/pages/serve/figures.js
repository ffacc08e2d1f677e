// What an answer cost, from its rounds (pure). Law: a figure that nothing is known of is not shown.

export const NOTHING = { limit: null, read: 0, reused: 0, rounds: 0, emitted: 0, timed: 0, drafted: 0, accepted: 0, seconds: 0 };

/** `sums` with an event of the stream. The first round's time belongs to the prompt. */
export function fold(sums, event) {
  if (event.event === "prefill") {
    return { ...sums, read: event.prompt_tokens - event.cached_tokens, reused: event.cached_tokens };
  }
  if (event.event !== "round") return sums;
  return {
    ...sums,
    rounds: sums.rounds + 1,
    emitted: sums.emitted + event.emitted.length,
    timed: sums.timed + (sums.rounds ? event.emitted.length : 0),
    drafted: sums.drafted + event.draft.length,
    accepted: sums.accepted + event.accepted,
    seconds: sums.seconds + (sums.rounds ? event.draft_seconds + event.verify_seconds : 0),
  };
}

/** [value, name, definition] of each figure. */
export function figures(sums) {
  const { limit, read, reused, rounds, emitted, timed, drafted, accepted, seconds } = sums;
  const found = [];
  const add = (known, ...figure) => { if (known) found.push(figure); };
  add(rounds, (emitted / rounds).toFixed(1), "tokens per pass", "emitted tokens ÷ target passes");
  add(drafted, percent(accepted / drafted), "of drafted accepted", "accepted ÷ drafted tokens");
  add(seconds && timed, speed(timed / seconds), "tok/s", "tokens after the first round ÷ their seconds");
  add(emitted, `${emitted}`, `${noun(emitted, "token")} in ${rounds} ${noun(rounds, "pass", "es")}`, "plain decoding takes a pass for each token");
  add(read + reused, `${read}`, `prompt ${noun(read, "token")} read${reused ? `, ${reused} reused` : ""}`, "tokens of the prompt read anew, and those that a cache held");
  const held = read + reused + emitted;
  add(limit && held, percent(held / limit), "of the context", `${held} of ${limit} tokens`);
  return found;
}

/** The same in a sentence. */
export function sentence(sums) {
  return figures(sums).map(([value, name]) => `${value} ${name}`).join(", ");
}

/** The share of the answer's tokens that were drafted. */
export function guessed({ accepted, emitted }) {
  return emitted ? accepted / emitted : 0;
}

function percent(rate) {
  return `${Math.round(100 * rate)} %`;
}

function speed(rate) {
  return rate.toFixed(rate < 9.95 ? 1 : 0);
}

function noun(count, one, ending = "s") {
  return count === 1 ? one : one + ending;
}
