// Package csictl is a CSI client for people and scripts: each call of the
// Identity, Controller and Node services as a command, with the verbs, flags and
// output of csc (gocsi).
//
// It knows no driver and decides nothing.
package csictl
