// Package archtest holds the code to its form: imports go down the layers, and
// files stay short.
package archtest
