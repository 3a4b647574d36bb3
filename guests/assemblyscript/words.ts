// The worked example of the AssemblyScript kit: a pipeline of three coroutines. A reader splits a text into words and sends each as a byte message; a
// counter counts them; when the reader closes the channel, the counter ends, and the first coroutine prints the counts.

import { Cell, channel, close, detach, join, print, recvText, sendText, start } from "./wavelock";
export { __stack_pointer } from "./wavelock";

const text =
  "the wave takes the lane and the lane takes the frame, and when the frame ends the wave ends too, " +
  "for a wave is a span of the lane and a frame is a span of waves";

const words = channel(4);
const counts = new Map<string, i32>();

function reader(_: i64): i64 {
  let begin = 0;
  for (let i = 0; i <= text.length; i++) {
    const code = i < text.length ? text.charCodeAt(i) : 32;
    if (code != 32 && code != 44) continue; // a blank, a comma
    if (i > begin) sendText(words, text.substring(begin, i));
    begin = i + 1;
  }
  close(words);
  return 0;
}

function counter(_: i64): i64 {
  let total: i64 = 0;
  let word = recvText(words, 64);
  while (word !== null) {
    counts.set(word, (counts.has(word) ? counts.get(word) : 0) + 1);
    total++;
    word = recvText(words, 64);
  }
  return total;
}

export function _start(): void {
  const result = new Cell();
  const child = start(counter, 0);
  detach(start(reader, 0));
  if (join(child, result.at) != 0) {
    print("the counter did not end well\n");
    return;
  }
  const names = counts.keys().sort((a, b) => {
    const more = counts.get(b) - counts.get(a);
    return more != 0 ? more : a < b ? -1 : a > b ? 1 : 0;
  });
  for (let i = 0; i < names.length; i++) print(counts.get(names[i]).toString() + " " + names[i] + "\n");
  print(result.value.toString() + " words\n");
}
