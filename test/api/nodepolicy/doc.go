// Package nodepolicy tests, on real API servers, what the account of a host can
// do with the rights and policies that deploy/host gives it, and that of a DPU with
// those of deploy/dpu.
package nodepolicy
