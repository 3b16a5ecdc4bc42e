// Show an agent's questions: their choices, and a field for another answer.

import { h } from "../parts/dom.js";
import { visible } from "../parts/text.js";

/**
 * Return an approval's questions; none for any other call.
 *
 * @param {Pick<Approval, "tool" | "params">} _
 */
export const questionsOf = ({ tool, params }) =>
  tool === "AskUserQuestion" && Array.isArray(params.questions)
    ? params.questions.filter((one) => typeof one?.question === "string")
    : [];

/**
 * Make the fields that answer them; `answers()` is null while one has no answer.
 *
 * @param {any[]} questions
 * @param {{ readOnly: boolean; changed(): void }} _
 */
export function questionForm(questions, { readOnly, changed }) {
  const parts = questions.map(({ question, multiSelect, options, optional, closed }, number) => {
    const type = multiSelect ? "checkbox" : "radio";
    const choices = (Array.isArray(options) ? options : [])
      .filter((one) => typeof one?.label === "string")
      .map(({ label, description }) => ({
        label,
        about: typeof description === "string" ? description : "",
        box: h("input", { type, name: `question-${number}`, disabled: readOnly }),
      }));
    const what = choices.length ? "Another answer" : "Your answer";
    const other = h("input", { type: "text", "aria-label": `${what}: ${question}` });
    other.placeholder = what;
    const node = h(
      "fieldset.question",
      {},
      h("legend", {}, visible(question)),
      choices.map(({ label, about, box }) => {
        const more = about && h("span.meta", {}, visible(about));
        return h("label.choice", {}, box, h("span", {}, visible(label), more));
      }),
      !readOnly && !closed && other,
    );
    // Of one answer the last counts: a choice, or words.
    node.addEventListener("input", (/** @type {Event} */ { target }) => {
      if (multiSelect) return;
      if (target !== other) other.value = "";
      else for (const { box } of choices) box.checked = false;
    });
    const chosen = () => choices.filter(({ box }) => box.checked).map(({ label }) => label);
    const answer = () => [...chosen(), other.value.trim()].filter(Boolean).join(", ");
    return { question, node, answer, optional, boxes: choices.map(({ box }) => box), other };
  });
  const node = h("div.questions", { on: { input: changed } }, ...parts.map((part) => part.node));
  const answers = () => {
    const all = parts.map(({ question, answer }) => [question, answer()]);
    const given = all.filter(([, answer]) => answer);
    const isWhole = parts.every(({ optional }, at) => optional || all[at][1]);
    return isWhole && given.length ? Object.fromEntries(given) : null;
  };
  /** What is chosen and typed, which `put` puts in again.
   *  @returns {[boolean[], string][]} */
  const typed = () =>
    parts.map(({ boxes, other }) => [boxes.map((one) => one.checked), other.value]);
  /** @param {[boolean[], string][]} before */
  const put = (before) =>
    parts.forEach(({ boxes, other }, number) => {
      const [checked, words] = before[number] ?? [[], ""];
      boxes.forEach((box, at) => (box.checked = checked[at] === true));
      other.value = words;
    });
  return { node, answers, typed, put };
}
