// Package nodepolicy tests, on real API servers, what the account of a host can
// do with the rights and policies that deploy/host gives it.
package nodepolicy
