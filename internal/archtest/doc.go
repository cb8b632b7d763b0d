// Package archtest holds the code to its form: imports go down the floors, and
// files stay short.
package archtest
