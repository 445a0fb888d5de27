// Code in colors: strings, comments, numbers and the words that most languages share. One pass, no grammar.

const words = (text) => new Set(text.split(/\s+/));

const WORDS = words(
  `abstract and as async await auto bool boolean break case catch char class const continue def default
  defer del delete do done double elif else enum esac except export extends extern false False fi final
  finally float fn for from func function go goto if impl implements import in instanceof int interface is
  lambda let long loop match mod module move mut namespace new nil None not null or package pass private
  protected pub public raise ref return self short signed sizeof static struct super switch template then
  this throw trait true True try type typedef typeof union unsafe unsigned use using var void where while
  with yield`,
);

const SQL = words(
  `alter and as asc between by case create delete desc distinct drop else end exists from group having in
  index inner insert into is join key left like limit not null on or order outer primary right select set
  table then union unique update values view when where with`,
);

const HASH = words(
  "bash conf dockerfile elixir ini julia make makefile perl py python r rb ruby sh shell toml yaml yml zsh",
);
const DASH = words("ada elm haskell hs lua sql");
const PLAIN = words("text txt plain plaintext markdown md console output diff log");

const SLASHES = String.raw`\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)`;
const TRIPLE = String.raw`"""[^]*?(?:"""|$)`;
const DOUBLE = String.raw`"(?:\\[^]|[^"\\\n])*"?`;
const SINGLE = String.raw`'(?:\\[^]|[^'\\\n]){0,200}'`;
// In Rust a single quote begins a character, or a lifetime.
const CHARACTER = String.raw`'(?:\\[^'\n]{1,10}|[^'\\\n])'`;
const BACKTICKS = "`(?:\\\\[^]|[^`\\\\])*`?";

/** Longer code is shown without colors. */
const LONGEST = 50_000;

/** Parts of code: a text, and what it is if that is known. */
export function highlighted(text, language) {
  const name = language.toLowerCase();
  if (name === "" || PLAIN.has(name) || text.length > LONGEST) return [{ kind: null, text }];
  const comment = HASH.has(name) ? String.raw`#[^\n]*` : DASH.has(name) ? String.raw`--[^\n]*` : SLASHES;
  const single = name === "rust" || name === "rs" ? CHARACTER : SINGLE;
  const token = new RegExp(
    `(?<comment>${comment})|(?<string>${TRIPLE}|${DOUBLE}|${single}|${BACKTICKS})` +
      String.raw`|(?<number>\b\d[\w.]*)|(?<word>[A-Za-z_]\w*)`,
    "g",
  );
  const isWord = (word) => (name === "sql" ? SQL.has(word.toLowerCase()) : WORDS.has(word));
  const parts = [];
  let end = 0;
  for (const { 0: found, index, groups } of text.matchAll(token)) {
    const kind = ["comment", "string", "number", "word"].find((kind) => groups[kind] !== undefined);
    if (kind === "word" && !isWord(found)) continue;
    if (index > end) parts.push({ kind: null, text: text.slice(end, index) });
    parts.push({ kind, text: found });
    end = index + found.length;
  }
  if (end < text.length) parts.push({ kind: null, text: text.slice(end) });
  return parts;
}
