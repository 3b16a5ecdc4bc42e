import assert from "node:assert/strict";
import test from "node:test";
import { mayTell } from "./store/notify.js";

const chosen = {
  kinds: ["approval_required", "task_complete"],
  muted: ["muted"],
  reminder_minutes: 0,
  quiet: null,
  detail: "quiet",
};
const night = { from: "22:30", to: "07:00", zone: "Europe/Berlin" };

test("an older bridge keeps no choices", () => {
  assert(mayTell(undefined, "agent_idle", "s"));
});

test("kinds and mutes", () => {
  assert(mayTell(chosen, "task_complete", "s"));
  assert(!mayTell(chosen, "error", "s"));
  assert(!mayTell(chosen, "task_complete", "muted"));
  assert(!mayTell(chosen, "approval_required", "muted", "medium"));
  assert(mayTell(chosen, "approval_required", "muted", "high"));
  assert(!mayTell({ ...chosen, kinds: ["error"] }, "approval_required", "s", "critical"));
});

test("quiet hours are what the clock of the zone shows", () => {
  const tell = (at, quiet = night, risk = "medium") =>
    mayTell({ ...chosen, quiet }, "approval_required", "s", risk, new Date(at));
  assert(tell("2027-01-10T21:29:00Z"));
  assert(!tell("2027-01-10T21:30:00Z"));
  assert(!tell("2027-01-10T23:00:00Z"), "at midnight");
  assert(!tell("2027-01-11T05:59:00Z"));
  assert(tell("2027-01-11T06:00:00Z"));
  assert(tell("2027-01-10T23:00:00Z", night, "critical"));
  const day = { from: "01:00", to: "02:30", zone: "Europe/Berlin" };
  assert(!tell("2027-03-28T00:59:00Z", day), "01:59, before the clock is put forward");
  assert(tell("2027-03-28T01:00:00Z", day), "03:00");
});
