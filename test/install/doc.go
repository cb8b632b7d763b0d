// Package install tries what docs/installing.md says: it takes the commands of that page, and
// makes the image of Moor by deploy/image/Dockerfile, from this machine's own Debian packages,
// since the test bed has no container engine. The test that installs, upgrades and uninstalls
// Moor on a bed has the build tag e2e: make install-test.
package install
