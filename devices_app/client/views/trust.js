// Ask whether the programs that a repository brings may run.

import { h } from "../parts/dom.js";
import { askSheet } from "../parts/sheet.js";
import { oneLine, visible, visibleName } from "../parts/text.js";

/** @type {Record<string, string>} */
const KINDS = {
  hook: "Hook",
  filter: "Filter",
  signature: "Signature",
  monitor: "File monitor",
  transport: "Transport",
};

/**
 * Show what would run, from where, and do `act` with its digest when it is trusted.
 *
 * @param {any} error the bridge's answer GIT_TRUST_REQUIRED
 * @param {string} verb what comes next, such as "commit"
 * @param {(digest: string) => void} act
 */
export function askTrust({ details }, verb, act) {
  const programs = details.programs.map((/** @type {Free} */ { kind, name, command, path }) =>
    h(
      "div.finding",
      {},
      h("strong", {}, `${KINDS[kind] ?? oneLine(kind)}: `, visibleName(name)),
      command && h("pre.wrapped", {}, visible(command)),
      path && h("p.meta", {}, visibleName(path)),
    ),
  );
  const content = [
    h("p", {}, "This repository brings programs of its own. To go on, the machine runs them:"),
    programs,
    h("p.meta", {}, "In ", visibleName(details.repository)),
    h(
      "p.hint",
      {},
      "They can do whatever you can do there, and call others. You are asked again when one of" +
        " them changes.",
    ),
  ];
  const trust = () => act(details.digest);
  askSheet("Run its programs?", content, `Trust and ${verb}`, trust, "primary.danger");
}
