// Split lines of code into comments, texts, numbers and keywords, by a table of languages. Pure.

const SLASHES = { line: "//", block: ["/*", "*/"] };
const HASH = { line: "(?<!\\S)#" };
const C =
  "break case const continue default do else enum for goto if return sizeof static struct " +
  "switch typedef union void while int char long short float double unsigned signed bool true " +
  "false class namespace new delete public private protected template this try catch throw " +
  "using virtual auto nullptr";
const JAVA =
  "abstract boolean break byte case catch char class const continue default do double else " +
  "enum extends final finally float for if implements import instanceof int interface long " +
  "native new null package private protected public return short static super switch this " +
  "throw throws try void while true false var val fun when object override data is in as " +
  "string bool using namespace async await foreach let func guard struct protocol self nil";
const SCRIPT =
  "async await break case catch class const continue default delete do else enum export " +
  "extends false finally for from function get if implements import in instanceof interface " +
  "let new null of private protected public readonly return set static super switch this " +
  "throw true try type typeof undefined var void while yield";
const PYTHON =
  "and as assert async await break case class continue def del elif else except False finally " +
  "for from global if import in is lambda match None nonlocal not or pass raise return True " +
  "try while with yield";
const GO =
  "break case chan const continue default defer else fallthrough false for func go goto if " +
  "import interface map nil package range return select struct switch true type var string " +
  "int error";
const RUST =
  "as async await break const continue crate dyn else enum extern false fn for if impl in let " +
  "loop match mod move mut pub ref return self Self static struct super trait true type " +
  "unsafe use where while";
const RUBY =
  "alias and begin break case class def do else elsif end ensure false for if in module next " +
  "nil not or redo rescue retry return self super then true undef unless until when while " +
  "yield";
const SHELL =
  "case do done elif else esac export fi for function if in local readonly return set shift " +
  "then until while";
const SQL =
  "add all alter and as asc begin between by case commit create delete desc distinct drop " +
  "else end exists foreign from group having in index inner insert into is join key left like " +
  "limit not null on or order outer primary references rollback select set table then union " +
  "unique update values view when where with";
const PHP =
  "abstract array as break case catch class const continue default do echo else elseif " +
  "extends false final finally fn for foreach function global if implements interface " +
  "namespace new null private protected public return static switch this throw true try use " +
  "var while";

/** @type {[string, Language][]} */
const TABLE = [
  ["c h cc cpp cxx hpp", { ...SLASHES, words: C }],
  ["java kt kts cs swift scala", { ...SLASHES, words: JAVA, long: ['"""'] }],
  ["js mjs cjs jsx ts tsx javascript typescript", { ...SLASHES, words: SCRIPT, long: ["`"] }],
  ["py pyi python", { ...HASH, words: PYTHON, long: ['"""', "'''"] }],
  ["go golang", { ...SLASHES, words: GO, long: ["`"] }],
  ["rs rust", { ...SLASHES, words: RUST, quotes: '"' }],
  ["rb ruby", { ...HASH, words: RUBY }],
  ["sh bash zsh shell", { ...HASH, words: SHELL }],
  ["sql", { line: "--", block: ["/*", "*/"], words: `${SQL} ${SQL.toUpperCase()}` }],
  ["php", { ...SLASHES, words: PHP }],
  ["css scss", { block: ["/*", "*/"], words: "" }],
  ["json", { words: "true false null", quotes: '"' }],
  ["yaml yml toml ini", { ...HASH, words: "true false null" }],
];
const LANGUAGES = new Map(
  TABLE.flatMap(([names, language]) => names.split(" ").map((name) => [name, language])),
);

/**
 * Return the language of a file by the end of its name, or of a code block by its word.
 *
 * @param {string} name @returns {Language | undefined}
 */
export const languageOf = (name) => LANGUAGES.get(name.toLowerCase().split(/[./]/).at(-1) ?? "");

/** @param {string} text */
const literally = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** @param {Language} _ */
function patternOf({ line, block, quotes = "\"'", long = [] }) {
  const parts = [
    `(?<comment>${line ? `${line}.*` : "(?!)"})`,
    `(?<open>${
      [block?.[0], ...long]
        .flatMap((one) => one ?? [])
        .map(literally)
        .join("|") || "(?!)"
    })`,
    `(?<text>${[...quotes].map((q) => `${q}(?:[^${q}\\\\]|\\\\.)*${q}?`).join("|")})`,
    "(?<number>(?<![\\w.])(?:0[xXbBoO][\\da-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)\\w*)",
    "(?<word>[A-Za-z_$][\\w$]*)",
  ];
  return new RegExp(parts.join("|"), "g");
}

/**
 * Make the function that splits one line after the other into tokens: kind, beginning and end.
 *
 * @param {Language} language
 * @returns {(line: string) => Token[]}
 */
export function tokenizer(language) {
  const pattern = patternOf(language);
  const words = new Set(language.words.split(" "));
  /** @type {{ kind: Token[0]; end: string } | null} */
  let open = null; // what a line before has begun
  return (line) => {
    /** @type {Token[]} */
    const tokens = [];
    let at = 0;
    /** @param {number} from @param {number} inside */
    const close = (from, inside) => {
      const { kind, end } = /** @type {NonNullable<typeof open>} */ (open);
      const found = line.indexOf(end, inside);
      at = found < 0 ? line.length : found + end.length;
      if (found >= 0) open = null;
      if (at > from) tokens.push([kind, from, at]);
    };
    if (open) close(0, 0);
    while (at < line.length && !open) {
      pattern.lastIndex = at;
      const found = pattern.exec(line);
      if (!found) break;
      const { index, groups = {} } = found;
      at = index + found[0].length;
      if (groups.open !== undefined) {
        const isComment = groups.open === language.block?.[0];
        open = {
          kind: isComment ? "comment" : "text",
          end: isComment ? (language.block?.[1] ?? "") : groups.open,
        };
        close(index, at);
      } else if (groups.comment !== undefined) tokens.push(["comment", index, at]);
      else if (groups.text !== undefined) tokens.push(["text", index, at]);
      else if (groups.number !== undefined) tokens.push(["number", index, at]);
      else if (words.has(found[0])) tokens.push(["word", index, at]);
    }
    return tokens;
  };
}
