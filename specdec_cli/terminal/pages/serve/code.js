// The tokens of a text on the page, its fenced code in blocks, its prose as Markdown. Law: the tokens that are said,
// joined, are the text.

import { element } from "./element.js";
import { Lines, codeOf } from "./fences.js";
import { looks } from "./markdown.js";

const SHOWN_MS = 2000;

/** Puts tokens into `place` as they come. One that crosses the end of a line, or of what is bold, becomes two elements. */
export class Tokens {
  #lines = new Lines();
  #line = []; // the elements of the line that has not ended
  #kind = "text";
  #block = null;

  constructor(place) {
    this.place = place;
    this.at = place;
    this.at.classList.add("here");
  }

  /** A token that is no part of the text. */
  lose(token) {
    this.at.append(token);
    this.#line.push(token);
  }

  /** A token of the text. */
  say(token) {
    for (const { text, kind } of this.#lines.read(token.textContent)) {
      if (kind !== this.#kind) this.#turn(kind);
      const rest = split(token, text.length);
      this.#placeOf(kind).append(token);
      this.#line.push(token);
      if (text.endsWith("\n")) this.end();
      token = rest;
    }
  }

  /** The line is over: prose gets its looks. */
  end() {
    if (this.#kind === "text") dress(this.#line.filter(({ tagName }) => tagName !== "DEL"));
    this.#line = [];
  }

  /** The line goes on in, or turns out to be, something else. */
  #turn(kind) {
    const left = this.#block;
    if (kind === "opening") this.place.append((this.#block = new Block()).whole);
    const to = this.#placeOf(kind);
    to.append(...this.#line);
    if (kind === "text" && this.#kind === "opening") left.whole.remove();
    this.#kind = kind;
    this.at.classList.remove("here");
    this.at = to;
    this.at.classList.add("here");
  }

  #placeOf(kind) {
    return kind === "text" ? this.place : this.#block[kind];
  }
}

/** A new token with what `token` has from `length` on, which that one loses; none where it has no more. */
function split(token, length) {
  const text = token.textContent;
  if (text.length <= length) return null;
  const rest = token.cloneNode();
  rest.classList.add("rest");
  write(rest, text.slice(length));
  write(token, text.slice(0, length));
  return rest;
}

/** Gives the tokens of a line the looks of its Markdown. */
function dress(tokens) {
  const parts = looks(tokens.map((token) => token.textContent).join(""));
  if (parts.every(([, names]) => !names.length)) return;
  for (const [text, names] of parts) {
    for (let left = text.length; left > 0; left -= tokens.shift().textContent.length) {
      const rest = split(tokens[0], left);
      if (rest) tokens[0].after(rest), tokens.splice(1, 0, rest);
      tokens[0].classList.add(...names);
    }
  }
}

/** Gives a token its text; blanks are not painted. */
export function write(token, text) {
  token.textContent = text;
  token.classList.toggle("blank", token.tagName !== "DEL" && !text.trim());
}

/** A button that copies what `text` gives. */
export function copyButton(text) {
  const button = element("button", "copy", "Copy");
  button.type = "button";
  button.addEventListener("click", async () => {
    button.textContent = (await copied(text())) ? "Copied" : "Not copied";
    setTimeout(() => { button.textContent = "Copy"; }, SHOWN_MS);
  });
  return button;
}

/** A block of code between its fences, with the button that copies it. */
class Block {
  constructor() {
    this.button = copyButton(() => codeOf(said(this.opening), said(this.code)));
    this.opening = element("div", "fence");
    this.code = element("pre", "source");
    this.code.tabIndex = 0;
    this.closing = element("div", "fence");
    this.whole = element("div", "code", "", this.button, this.opening, this.code, this.closing);
    for (const part of [this.whole, this.code]) part.setAttribute("role", "group");
    this.whole.setAttribute("aria-label", "Code");
    this.code.setAttribute("aria-label", "Lines of code");
  }
}

function said(place) {
  return [...place.querySelectorAll("span")].map((token) => token.textContent).join("");
}

/** Whether the clipboard holds `text`. Pages of another machine without TLS have only the old way. */
async function copied(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text).then(() => true, () => false);
  const give = (event) => {
    event.preventDefault();
    event.clipboardData.setData("text/plain", text);
  };
  document.addEventListener("copy", give, { once: true });
  const done = document.execCommand("copy");
  document.removeEventListener("copy", give);
  return done;
}
