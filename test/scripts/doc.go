// Package scripts tests the scripts that gate a change, hack/steps.sh and
// hack/verify.sh: with programs that only pretend, it looks whether what fails
// makes them fail, and whether what they started is ended.
package scripts
