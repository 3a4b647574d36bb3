// Texts: building, splitting, joining, replacing, numbers to text and back, a map keyed by text, UTF-8 both ways.

function mixText(hash: u32, text: string): u32 {
  for (let i = 0; i < text.length; i++) hash = (hash ^ <u32>text.charCodeAt(i)) * 16777619;
  return hash;
}

const prose =
  "A session is an instance of a module. A coroutine is a reified call stack running in one session. " +
  "A channel is a bounded FIFO owned by a session, the only way to cross sessions.";

export function run(): i32 {
  let hash: u32 = 2166136261;
  const counts = new Map<string, i32>();
  const words = prose.split(" ");
  for (let i = 0; i < words.length; i++) {
    const word = words[i].replace(".", "").replace(",", "").toLowerCase();
    counts.set(word, (counts.has(word) ? counts.get(word) : 0) + 1);
  }
  const names = counts.keys().sort();
  for (let i = 0; i < names.length; i++) hash = mixText(hash, names[i] + "=" + counts.get(names[i]).toString());

  let built = "";
  for (let i = 0; i < 200; i++) built += String.fromCharCode(97 + (i * 7) % 26);
  hash = mixText(hash, built);
  hash = mixText(hash, built.split("a").reverse().join("-"));
  hash = mixText(hash, built.substring(10, 40).padStart(50, "*").toUpperCase());
  if (built.indexOf("hov") != 1 || !built.includes(built.slice(-5)) || built.startsWith("z")) return -1;

  for (let i = -5; i <= 5; i++) {
    const value = <f64>i * 1.37 + 1 / <f64>(i * i + 3);
    hash = mixText(hash, value.toString());
    hash = mixText(hash, (i * 123456789).toString(16));
    hash = mixText(hash, (<i64>i * 1234567890123).toString());
    if (parseFloat(value.toString()) != value) return -2;
    if (parseInt((i * 77).toString()) != <f64>(i * 77)) return -3;
  }

  const accented = "na\u00efve \u4e16\u754c \ud83d\ude00";
  const bytes = String.UTF8.encode(accented);
  if (String.UTF8.decode(bytes) != accented) return -4;
  const view = Uint8Array.wrap(bytes);
  for (let i = 0; i < view.length; i++) hash = (hash ^ view[i]) * 16777619;
  return <i32>hash;
}
