// Package archtest holds the code to its form: imports go down the layers, and
// files, functions and packages stay small.
package archtest
