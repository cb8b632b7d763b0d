//go:build race

package hostsync_test

// stride is how many writes lie between two that are lost: the detector makes
// everything much slower.
const stride = 3
