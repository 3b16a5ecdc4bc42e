// What a picture is by its first bytes, how small it is made, and where pictures stand in rows.

import assert from "node:assert/strict";
import { test } from "node:test";
import { fitted, pictureOf } from "./parts/picture.js";
import { emptyChat, foldChat } from "./store/chat.js";
import { picturesIn } from "./store/pictures.js";

const bytes = (...parts) =>
  Uint8Array.from(
    parts.flatMap((part) => (typeof part === "string" ? [...Buffer.from(part, "latin1")] : part)),
  );
const png = (...size) =>
  bytes(
    "\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
    size.flatMap((side) => [0, 0, side >> 8, side & 255]),
  );
const jpeg = bytes("\xff\xd8\xff\xe1\0\x08secret", "\xff\xff\xc2\0\x0b\x08", [1, 44, 2, 88, 3]);

test("each kind by its bytes", () => {
  const kinds = [
    [png(600, 300), "image/png"],
    [bytes("GIF89a", [88, 2, 44, 1], "\0\0\0;"), "image/gif"],
    [
      bytes("GIF89a\x01\0\x01\0\x80\0\0\0\0\0\0\0\0!\xfe\x02hi\0,P\x02\0\0\b\0", [44, 1]),
      "image/gif",
    ],
    [bytes("RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0", [87, 2, 0, 43, 1, 0, 0]), "image/webp"],
    [bytes("RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f", [0x57, 0xc2, 0x4a, 0]), "image/webp"],
    [bytes("RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a", [88, 2, 44, 1]), "image/webp"],
    [jpeg, "image/jpeg"],
  ];
  for (const [head, type] of kinds)
    assert.deepEqual(pictureOf(head), { type, width: 600, height: 300 });
});

test("markers of a JPEG that have no length", () => {
  for (const mark of [0x00, 0x01, 0xd0, 0xd7]) {
    const head = bytes("\xff\xd8\xff", [mark, ...jpeg.slice(2)]);
    assert.deepEqual(pictureOf(head), { type: "image/jpeg", width: 600, height: 300 });
  }
});

test("what is none, is cut off, empty or too large is a file", () => {
  for (const head of [bytes("<svg"), bytes(""), png(600, 300).slice(0, 20), png(0, 300)])
    assert.equal(pictureOf(head), null);
  assert.ok(pictureOf(png(10_000, 5000)));
  assert.equal(pictureOf(png(30_000, 30_000)), null);
  for (let end = 0; end < 22; end += 1) assert.equal(pictureOf(jpeg.slice(0, end)), null);
});

test("no side is longer than said", () => {
  assert.deepEqual(fitted({ width: 4000, height: 3000 }, 2000), { width: 2000, height: 1500 });
  assert.deepEqual(fitted({ width: 9000, height: 1 }, 2000), { width: 2000, height: 1 });
  assert.deepEqual(fitted({ width: 20, height: 10 }, 2000), { width: 20, height: 10 });
});

const block = (id) => ({ type: "image", attachment_id: id, media_type: "image/png", size: 5 });
const ids = ({ attached }) => attached.map(({ attachment_id: id }) => id);

test("prompts, answers, results and what an agent stopped with have their pictures", () => {
  let number = 0;
  const row = (type, payload) => ({ type, payload, id: String((number += 1)), timestamp: "" });
  const event = (name, payload) => row("agent_event", { event: name, payload });
  const attachments = [{ attachment_id: "p", name: "a.png", type: "image/png", size: 5 }];
  const rows = [
    event("UserPromptSubmit", { prompt: "look", message_id: "1", attachments }),
    row("stream_start", { message_id: "m" }),
    row("stream_chunk", { message_id: "m", content: "see", blocks: [block("a")] }),
    row("stream_chunk", { message_id: "m", content: "", blocks: [block("b")] }),
    row("tool_result", { tool_call_id: "t", tool: "x", result: { content: [block("r")] } }),
    event("Stop", { message: "done", context: { content: [block("s")] } }),
  ];
  assert.deepEqual(foldChat(emptyChat(), rows).items.map(ids), [["p"], ["a", "b"], ["r"], ["s"]]);
  assert.deepEqual(picturesIn({ type: "image", media_type: "image/png", size: 5 }), []);
});
