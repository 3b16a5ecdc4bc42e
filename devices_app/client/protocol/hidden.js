// Name the characters that cannot be seen, in words that come from elsewhere. Pure.

const PICTURE = "\\p{Extended_Pictographic}";
const JOINED = `(?<=[${PICTURE}\\ufe0f\\u{1f3fb}-\\u{1f3ff}])\\u200d(?=${PICTURE})`; // within one emoji
// Controls, bidi marks, zero width, tags, variation selectors that change what is read.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e0fff}]/u;
/** One such character. */
export const ODD = new RegExp(`(?!${JOINED})${HIDDEN.source}`, "u");
export const ODD_ALL = new RegExp(ODD.source, "gu");

/** Write a hidden character as people name it: "U+202E". */
export const codePoint = (character) =>
  `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

/** Return a text with every hidden character written as its name. */
export const named = (text) => String(text).replace(ODD_ALL, codePoint);
