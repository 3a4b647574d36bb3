// Runs in Duktape and in MuJS: objects, closures, prototypes, arrays, strings, regular expressions, JSON, numbers, dates, errors as values.
function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
print("fib " + fib(20));

var sieve = [], primes = 0;
for (var i = 2; i < 10000; i++) {
  if (!sieve[i]) { primes++; for (var j = i * i; j < 10000; j += i) sieve[j] = true; }
}
print("primes " + primes);

function Shape(name) { this.name = name; }
Shape.prototype.area = function () { return 0; };
Shape.prototype.toString = function () { return this.name + " " + this.area().toFixed(3); };
function Circle(r) { Shape.call(this, "circle"); this.r = r; }
Circle.prototype = Object.create(Shape.prototype);
Circle.prototype.area = function () { return Math.PI * this.r * this.r; };
print(new Circle(2) + ", " + new Shape("none") + ", " + (new Circle(1) instanceof Shape));

var words = "the quick brown fox jumps over the lazy dog the end".split(" "), counts = {};
words.forEach(function (word) { counts[word] = (counts[word] || 0) + 1; });
print(Object.keys(counts).sort().map(function (word) { return word + ":" + counts[word]; }).join(" "));

var list = [], state = 42;
for (var k = 0; k < 2000; k++) { state = (state * 16807) % 2147483647; list.push(state); }
list.sort(function (a, b) { return a - b; });
print(list[0] + " " + list[1000] + " " + list[1999] + " " + list.reduce(function (a, b) { return (a + b) % 1000003; }, 0));

print(JSON.stringify({ a: [1, 2.5, "x\n\u00e9", null, true], b: { c: [] } }) + " " + JSON.parse('{"k":[1,{"v":-1e3}]}').k[1].v);
print("2026-11-18".replace(/(\d+)-(\d+)-(\d+)/, "$3.$2.$1") + " " + "aXbXc".split(/X/).length + " " + /^(a|b)*c$/.test("ababc"));
print([1 / 3, 1e21, -0, 0.1 + 0.2, 5e-324, 123456789012345680000, NaN, 1 / 0].join(" "));
print([7 % -3, -7 >> 1, -7 >>> 28, 5 & 6, 5 ^ 6, ~5, 1 << 31, parseInt("ff", 16), parseFloat("3.5e2x"), (255).toString(2)].join(" "));
print(new Date(86400000 * 365.25 * 30).toISOString() + " " + Date.UTC(2000, 1, 29));
print("h\u00e9llo".toUpperCase() + " " + "abc".charCodeAt(1) + " " + "  trim ".trim() + "|" + "abcdef".slice(-3, -1) + " " + encodeURIComponent("a b&\u00e9"));

var matrix = [], size = 24;
for (var r = 0; r < size; r++) { matrix[r] = []; for (var c = 0; c < size; c++) matrix[r][c] = (r * c + r) % 7 - 3; }
function multiply(a, b) {
  return a.map(function (row) {
    return row.map(function (_, c) { var sum = 0; for (var k = 0; k < row.length; k++) sum += row[k] * b[k][c]; return sum % 1000; });
  });
}
var power = multiply(multiply(matrix, matrix), matrix), trace = 0;
for (var d = 0; d < size; d++) trace += power[d][d];
print("trace " + trace);

var memo = {};
function paths(x, y) { var key = x + "," + y; return x === 0 || y === 0 ? 1 : memo[key] || (memo[key] = paths(x - 1, y) + paths(x, y - 1)); }
print("paths " + paths(12, 12));
print([10, 9, 1].sort() + " " + [1, [2, [3]]] + " " + typeof null + " " + typeof print + " " + (null == undefined) + " " + ("5" * "2") + " " + ("5" + 2));
