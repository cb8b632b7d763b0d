// Command bench measures Moor on the running test bed: the path of a volume
// from its claim to a running pod, what that costs both API servers, and how
// much memory the processes hold. It prints a table with the targets and
// writes the numbers as JSON (see Result). What it makes it removes, also
// after a failure; hack/steps.sh brings the bed up and down around it.
package main
