//go:build race

package hostcluster_test

// stride is how many writes lie between two that are lost: the detector makes
// everything much slower.
const stride = 3
