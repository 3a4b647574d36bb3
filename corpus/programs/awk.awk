# Fields, arrays, regular expressions, functions, printf, string functions, getline from the input, sorting by hand.
function sort(list, n,    i, j, t) {
  for (i = 2; i <= n; i++) { t = list[i]; for (j = i - 1; j > 0 && list[j] > t; j--) list[j + 1] = list[j]; list[j + 1] = t }
}
{ lines++; words += NF; bytes += length($0) + 1; for (i = 1; i <= NF; i++) count[$i]++ }
/^sh.*ng/ { matched++ }
$1 ~ /^[a-f]/ && NF > 6 { early++; last = $NF }
NR % 500 == 0 { line = toupper(substr($0, 1, 20)); gsub(/[AEIOU]/, "_", line); print NR, line }
END {
  printf "%d lines, %d words, %d bytes, %d matched, %d early, %s last\n", lines, words, bytes, matched, early, last
  for (word in count) if (count[word] > 120) names[++n] = sprintf("%05d %s", 99999 - count[word], word)
  sort(names, n)
  for (i = 1; i <= 12; i++) { split(names[i], part, " "); print part[2], 99999 - part[1] }
  print index("haystack", "st"), match("xxabbbc", /ab+/), RSTART, RLENGTH, sprintf("%.4f %e %c %5s|", sqrt(2), exp(10), 65, "r")
  x = "3x"; print x + 4, -7 % 3, 2 ^ 10, 1 / 3, int(-3.7), substr("hello", 2, 3), length("héllo")
}
