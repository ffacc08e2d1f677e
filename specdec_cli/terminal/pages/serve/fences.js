// Which lines of a text are fenced code (pure), as CommonMark has it. Law: the parts of a text, joined, are the text.

const OPENING = /^([ \t]*)(`{3,}(?!.*`)|~{3,})/;
const DEEPER = 3; // a fence that is indented by more than the first one is code

/** Reads a text as it grows. A line may change its kind until it ends: "``" is code where "```" closes it. */
export class Lines {
  #line = "";
  #fence = null;

  /** Each part of `text` within one line, and what the line is up to there: text, opening, code or closing. */
  *read(text) {
    for (const part of text.match(/[^\n]*\n|[^\n]+/g) ?? []) {
      this.#line += part;
      const kind = this.#kind();
      yield { text: part, kind };
      if (part.endsWith("\n")) this.#end(kind);
    }
  }

  #kind() {
    if (!this.#fence) return OPENING.test(this.#line) ? "opening" : "text";
    const { indent, mark } = this.#fence, bare = this.#line.trim();
    const closes = bare.startsWith(mark) && bare === mark[0].repeat(bare.length);
    return closes && this.#line.search(/\S/) <= indent + DEEPER ? "closing" : "code";
  }

  #end(kind) {
    if (kind === "opening") {
      const [, blanks, mark] = OPENING.exec(this.#line);
      this.#fence = { indent: blanks.length, mark };
    }
    if (kind === "closing") this.#fence = null;
    this.#line = "";
  }
}

/** The code of a block: its lines without as many blanks as its `opening` line has, and without the last line's end. */
export function codeOf(opening, lines) {
  const blanks = new RegExp(`^[ \\t]{0,${opening.search(/\S/)}}`, "gm");
  return lines.replace(blanks, "").replace(/\n$/, "");
}
