// Push the current branch, after a look at what will go.

import { fill, h, showFailure } from "../parts/dom.js";
import { askSheet } from "../parts/sheet.js";
import { counted, oneLine, visible } from "../parts/text.js";
import { askTrust } from "./trust.js";

/**
 * Ask what would go, show it, and push when a person says so.
 *
 * @param {Ask} ask sends a request about the session and returns its answer
 * @param {Partial<Wire.Payloads["git_status_response"]>} status the status that the person sees
 * @param {HTMLElement} outcome where it is told what came of it
 * @param {() => void} done
 */
export async function openPush(ask, status, outcome, done) {
  const seen = { repository: status.repository, head: status.head };
  const how = { ...seen, set_upstream: !status.upstream };
  /** @param {Failure} error */
  const refuse = (error) => showFailure(outcome, "Not pushed.", error, "the remote");
  /** @param {{ branch: string, url: string }} to @param {string} [trust] */
  const push = async (to, trust) => {
    fill(outcome, h("p.meta", {}, "Pushing…"));
    try {
      const { remote, branch, count, links } = await ask("git_push", {
        ...how,
        ...to,
        dry_run: false,
        ...(trust && { trust }),
      });
      const where = `${oneLine(remote)}/${oneLine(branch)}`;
      const told = `Pushed ${counted(count, "commit")} to ${where}.`;
      fill(outcome, h("p.finding.good", {}, told), links.map(linkTo));
      done();
    } catch (/** @type {any} */ error) {
      fill(outcome);
      if (error.code === "GIT_TRUST_REQUIRED") askTrust(error, "push", (given) => push(to, given));
      else refuse(error);
    }
  };
  fill(outcome, h("p.meta", {}, "Asking what would go…"));
  try {
    const { remote, branch, url, commits, count } = await ask("git_push", {
      ...how,
      dry_run: true,
    });
    fill(outcome);
    const { upstream } = status;
    const isUpstream = upstream?.remote === remote && upstream.branch === branch;
    const isNew = !upstream || (isUpstream && upstream.gone);
    const content = [
      h("p", {}, `${oneLine(remote)}/${oneLine(branch)}`, isNew && " (new there)"),
      h("p.meta", {}, visible(url)),
      commits.map(({ hash, summary }) =>
        h("p", {}, h("code", {}, hash.slice(0, 8)), ` ${oneLine(summary)}`),
      ),
      count > commits.length && h("p.note", {}, `And ${count - commits.length} older ones.`),
    ];
    askSheet("Push", content, `Push ${counted(count, "commit")}`, () => push({ branch, url }));
  } catch (/** @type {any} */ error) {
    refuse(error);
  }
}

// An address that the server printed, such as that of a new pull request.
/** @param {string} address */
function linkTo(address) {
  if (!address.startsWith("https://")) return h("p.meta", {}, visible(address));
  const about = { href: address, rel: "noopener noreferrer", target: "_blank" };
  return h("p", {}, h("a", about, visible(address)));
}
