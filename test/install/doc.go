// Package install tries what docs/installing.md says, and the pages of what is installed by manifests
// alone: it takes the commands of these pages, and makes Moor's images by hack/images.sh, as
// deploy/image/Dockerfile does, since the test bed has no container engine. The test that installs,
// upgrades and uninstalls Moor on a bed has the build tag e2e: make install-test.
package install
