// Questions and answers on the page. Law: text of a model or a server enters by textContent alone, and an answer's
// said tokens, joined, are its text.

import { Tokens, copyButton, write } from "./code.js";
import { element } from "./element.js";
import { NOTHING, figures, fold, guessed, sentence } from "./figures.js";

const UNSAID = new Set(["rejected", "discarded"]);
const ENDED = { length: "Stopped at the longest length allowed." };
const PARTIAL = "Stopped: the text above is partial.", EMPTY = "Stopped before the first word.";

/** A question as it stands in the log. */
export function questionElement(text) {
  return turn("question", "You", element("p", "text", text));
}

function turn(kind, who, ...inside) {
  const made = element("article", kind, "", element("h2", "", who), ...inside);
  made.setAttribute("aria-label", who);
  return made;
}

/** An answer that grows; `titles` says what the fate of a token means, `limit` is the context's in tokens, if known. */
export class Answer {
  constructor(who, titles, limit) {
    this.titles = titles;
    this.sums = { ...NOTHING, limit };
    this.text = "";
    this.reason = null;
    this.body = element("div", "text");
    this.thought = element("div", "text");
    this.thinking = element("details", "thinking", "", element("summary", "", "Thinking"), this.thought);
    this.thinking.hidden = true;
    this.bar = element("div", "share", "", element("i"));
    this.facts = element("dl", "facts");
    this.retry = element("button", "retry", "Retry");
    this.retry.type = "button";
    this.acts = element("div", "acts", "", copyButton(() => this.text), this.retry);
    this.acts.hidden = true;
    this.whole = turn("answer writing", who, this.thinking, this.body, this.bar, this.facts, this.acts);
    this.bar.hidden = true;
    [this.said, this.thoughts] = [this.body, this.thought].map((place) => new Tokens(place));
    this.wait = element("p", "note loading");
  }

  /** Its first event has to wait until its pair is loaded: says so, unless there was one. */
  loads(words) {
    if (this.begun) return false;
    this.wait.textContent = words;
    this.body.before(this.wait);
    return true;
  }

  /** Takes a chunk of the stream in. */
  take({ choices, specdec }) {
    this.#begin();
    if (specdec) this.#count(specdec);
    for (const { delta, finish_reason } of choices) {
      this.#write(delta);
      this.reason = finish_reason ?? this.reason;
    }
  }

  /** An answer of an earlier visit. */
  recall(text) {
    this.text = text;
    this.said.say(element("span", "plain", text));
    this.#finish();
  }

  /** Nothing more comes. */
  end() {
    this.#finish();
    const note = this.reason ? ENDED[this.reason] : this.text ? PARTIAL : EMPTY;
    if (note) this.body.after(element("p", "note", note));
    return `${note ?? "The answer is complete."} ${sentence(this.sums)}`;
  }

  /** It failed: the two lines that say why. */
  fail({ message, hint = "load this page again" }) {
    this.#finish();
    const lines = [["error:", message], ["hint:", hint]];
    const error = element("p", "error", "", ...lines.map(([name, text]) => element("span", "", "", element("b", "", name), ` ${text}`)));
    error.setAttribute("role", "alert");
    this.body.after(error);
  }

  #finish() {
    this.#begin();
    this.whole.classList.remove("writing");
    for (const tokens of [this.said, this.thoughts]) tokens.end();
    this.acts.hidden = !this.text;
  }

  #begin() {
    this.begun = true;
    this.wait.remove();
  }

  #write({ content, reasoning_content: thought, specdec: tokens = [] }) {
    this.text += content ?? "";
    const place = thought ? this.thoughts : this.said;
    if (thought) this.thinking.hidden = false;
    for (const [fate, text] of tokens) place[UNSAID.has(fate) ? "lose" : "say"](this.#token(fate, text));
  }

  #token(fate, text) {
    const unsaid = UNSAID.has(fate);
    const made = element(unsaid ? "del" : "span", fate);
    write(made, unsaid ? signs(text) : text);
    made.title = `${fate}: ${this.titles[fate]}`;
    return made;
  }

  #count(event) {
    this.sums = fold(this.sums, event);
    this.whole.classList.toggle("drafted", this.sums.drafted > 0);
    this.bar.hidden = !this.sums.drafted;
    this.bar.title = `${this.sums.accepted} of ${this.sums.emitted} tokens were drafted`;
    this.bar.firstChild.style.width = `${100 * guessed(this.sums)}%`;
    this.facts.replaceChildren(...figures(this.sums).map(figureElement));
  }
}

/** Blanks of a token that is not said, as signs: it must not break the line. */
function signs(text) {
  const drawn = text.replaceAll("\n", "↵").replaceAll("\t", "⇥");
  return drawn.trim() ? drawn : drawn.replaceAll(" ", "␣");
}

function figureElement([value, name, definition]) {
  const made = element("div", "", "", element("dd", "", value), element("dt", "", name));
  made.title = definition;
  return made;
}
