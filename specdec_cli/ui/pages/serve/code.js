// The tokens of a text on the page, its fenced code in blocks. Law: the tokens that are said, joined, are the text.

import { element } from "./element.js";
import { Lines, codeOf } from "./fences.js";

const SHOWN_MS = 2000;

/** Puts tokens into `place` as they come. One that crosses the line of a fence becomes two elements. */
export class Tokens {
  #lines = new Lines();
  #line = []; // the elements of the line that has not ended, and where it begins in the first of them
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
    this.#line.push({ token, from: 0 });
  }

  /** A token of the text. */
  say(token) {
    let from = 0;
    for (const { text, kind } of this.#lines.read(token.textContent)) {
      if (kind !== this.#kind) this.#turn(kind);
      const to = this.#placeOf(kind);
      if (token.parentNode !== to) [token, from] = [moved(token, from, to), 0];
      this.#line.push({ token, from });
      from += text.length;
      if (text.endsWith("\n")) this.#line = [];
    }
  }

  /** The line goes on in, or turns out to be, something else. */
  #turn(kind) {
    const left = this.#block;
    if (kind === "opening") this.place.append((this.#block = new Block()).whole);
    const to = this.#placeOf(kind);
    this.#line = this.#line.map(({ token, from }) => ({ token: moved(token, from, to), from: 0 }));
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

/** `token`, or a new one with its text from there on, at the end of `to`. */
function moved(token, from, to) {
  let part = token;
  if (from > 0) {
    part = token.cloneNode();
    part.classList.add("rest");
    write(part, token.textContent.slice(from));
    write(token, token.textContent.slice(0, from));
  }
  to.append(part);
  return part;
}

/** Gives a token its text; blanks are not painted. */
export function write(token, text) {
  token.textContent = text;
  token.classList.toggle("blank", token.tagName !== "DEL" && !text.trim());
}

/** A block of code between its fences, with the button that copies it. */
class Block {
  constructor() {
    this.button = element("button", "copy", "Copy");
    this.button.type = "button";
    this.button.addEventListener("click", () => this.copy());
    this.opening = element("div", "fence");
    this.code = element("pre", "source");
    this.code.tabIndex = 0;
    this.closing = element("div", "fence");
    this.whole = element("div", "code", "", this.button, this.opening, this.code, this.closing);
    for (const part of [this.whole, this.code]) part.setAttribute("role", "group");
    this.whole.setAttribute("aria-label", "Code");
    this.code.setAttribute("aria-label", "Lines of code");
  }

  async copy() {
    const done = await copied(codeOf(said(this.opening), said(this.code)));
    this.button.textContent = done ? "Copied" : "Not copied";
    setTimeout(() => { this.button.textContent = "Copy"; }, SHOWN_MS);
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
