// Command bench measures Moor: the path of a volume from its claim to a running
// pod, what that costs both API servers, how long failovers and drains take, how
// much memory the processes hold. It prints a table with the targets, adds the
// samples to a file (test/bench/results) and fails if they are not good. What it
// makes it removes, also after a failure; hack/steps.sh brings the bed up and
// down around it.
//
// It has more files than other packages: one for each thing that is measured.
package main
