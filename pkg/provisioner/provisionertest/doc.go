// Package provisionertest holds the contract suites which every storage
// platform passes, one per interface of package provisioner, and Fake, an in-memory
// platform with a call log and error injection that passes them too.
//
// It never talks to anything outside the process. For tests only.
package provisionertest
