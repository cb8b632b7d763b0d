package storageclass

import (
	"maps"
	"slices"
	"strings"
)

// maxTypos is the edit distance up to which a key counts as a misspelled one of
// ours and not as the vendor's. docs/troubleshooting.md tells vendors so.
const maxTypos = 2

// checkSpelling refuses keys that are nearly one of ours: passed on to a
// vendor that ignores them they would change the volume without a word.
func checkSpelling(parameters map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		if slices.Contains(ours, key) {
			continue
		}
		for _, known := range ours {
			if distance(strings.ToLower(key), strings.ToLower(known)) <= maxTypos {
				return invalid("unknown parameter %q: did you mean %q?", key, known)
			}
		}
	}
	return nil
}

// distance is the Levenshtein distance of a and b, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diagonal, row[j] = row[j], min(row[j]+1, row[j-1]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
