//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/net/webdav"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/layout"
	"github.com/moor-storage/moor/test/devcluster/ociimage"
	"github.com/moor-storage/moor/test/devcluster/packages"
	"github.com/moor-storage/moor/test/dmcrypt"
	"github.com/moor-storage/moor/test/kit"
)

// cryptsetup is that of Debian, but for what needs the kernel's dm-crypt: the machine of the test is asked for that.
// As cryptsetup, it ends with 4 if there is no device to close.
const cryptsetup = `#!/bin/bash
mkdir -p /run/cryptsetup # for its locks
case $1 in
open)
  set -o errexit
  device=$2 name=$3 passphrase=$5 key=$(mktemp -u)
  trap 'rm -f "$key"' EXIT
  cryptsetup.real -q luksDump --dump-volume-key --volume-key-file "$key" --key-file "$passphrase" "$device" >/dev/null
  area=$(cryptsetup.real luksDump --dump-json-metadata "$device" | jq -r '.segments."0" | "offset=\(.offset)&sector=\(.sector_size)"')
  number=$((0x$(stat -L -c %%t "$device"))):$((0x$(stat -L -c %%T "$device")))
  plain=$(wget -q -O - --post-data "$(od -An -v -tx1 "$key" | tr -d ' \n')" "%[1]s/open?name=$name&device=$number&$area")
  mkdir -p /dev/mapper && mknod "/dev/mapper/$name" b "${plain%%:*}" "${plain#*:}" ;;
close)
  for try in {1..60}; do # cryptsetup, too, tries again while a device is open
    said=$(wget -q -O - --post-data '' "%[1]s/close?name=$2" 2>&1) && exit 0
    case $said in *409*) sleep 0.5 ;; *) break ;; esac
  done
  echo "$said" >&2
  case $said in *404*) exit 4 ;; *) exit 5 ;; esac ;;
*) exec cryptsetup.real "$@" ;;
esac
`

// copiesNodes is cp with -R: as Debian's does by itself, cp -p would read all of a device and write a regular file.
const copiesNodes = `#!/bin/bash
exec cp.real -R "$@"
`

// gsutil is the part of Google's program that the example calls, over a WebDAV server whose address is the key.
const gsutil = `#!/bin/bash
key=
while [ "$1" = -o ]; do
  case $2 in Credentials:gs_service_key_file=*) key=${2#*=} ;; esac
  shift 2
done
store() { rclone --config= --webdav-url "$(cat "$key")" "$@"; }
bucket=":webdav:${*: -1}" bucket=${bucket/gs:\/\//}
case $1 in
mb) ! store lsf "$bucket" >/dev/null 2>&1 || { echo "bucket already exists" >&2; exit 1; }
  store mkdir "$bucket" ;;
rm) store lsf "$bucket" >/dev/null 2>&1 || { echo "bucket does not exist" >&2; exit 1; }
  store purge "$bucket" ;;
esac
`

// gcsfuse mounts a bucket of that server.
const gcsfuse = `#!/bin/bash
key=
while [ $# -gt 2 ]; do
  [ "$1" = --key-file ] && key=$2
  shift
done
url=$(cat "$key")
rclone --config= --webdav-url "$url" lsf ":webdav:$1" >/dev/null || exit 1
exec rclone --config= --webdav-url "$url" mount --daemon --allow-other --vfs-cache-mode writes --dir-cache-time 0 --cache-dir /scratch ":webdav:$1" "$2"
`

// exampleImage brings an image to all hosts: busybox, bash, some of this machine's programs by their places in the image,
// and scripts.
func exampleImage(ctx context.Context, name, image string, programs, scripts map[string]string) {
	GinkgoHelper()
	files, err := devcluster.BusyboxFiles(ctx)
	Expect(err).NotTo(HaveOccurred())
	programs["/bin/bash"] = "bash"
	files, err = devcluster.WithPrograms(ctx, files, programs)
	Expect(err).NotTo(HaveOccurred())
	files = slices.DeleteFunc(files, func(f ociimage.File) bool { return scripts[f.Path] != "" })
	for path, content := range scripts {
		files = append(files, ociimage.File{Path: path, Content: []byte(content), Mode: 0o755})
	}
	// It is loaded when a thread ends: cryptsetup has some.
	unwinder, err := filepath.Glob("/lib/*-linux-gnu/libgcc_s.so.1")
	Expect(err).NotTo(HaveOccurred())
	Expect(unwinder).To(HaveLen(1))
	content, err := os.ReadFile(unwinder[0])
	Expect(err).NotTo(HaveOccurred())
	files = append(files, ociimage.File{Path: unwinder[0], Content: content, Mode: 0o644})
	Expect(bed.LoadImage(ctx, name, ociimage.Image{Names: []string{"docker.io/" + image}, Command: []string{"sh"}, Files: files})).To(Succeed())
}

// serves serves pods over HTTP until the test ends, and returns where.
func serves(ctx context.Context, h http.Handler) (url string) {
	GinkgoHelper()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(layout.RootIP, "0"))
	Expect(err).NotTo(HaveOccurred())
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	DeferCleanup(server.Close)
	return "http://" + listener.Addr().String()
}

// example applies files of PaV's examples, changed by change, which go with the test, and returns what they have by kind.
func (ns *testNamespace) example(ctx context.Context, name string, change func(*unstructured.Unstructured)) map[string]*unstructured.Unstructured {
	GinkgoHelper()
	objects, err := kit.ReadManifests(filepath.Join(bed.Root(), "pkg", "provisioner", "pods", "testdata", name+".yaml"))
	Expect(err).NotTo(HaveOccurred())
	out := map[string]*unstructured.Unstructured{}
	for _, o := range objects {
		switch inNamespace, err := clients.Host.IsObjectNamespaced(o); {
		case err != nil:
			Fail(err.Error())
		case inNamespace:
			o.SetNamespace(ns.name)
		default:
			DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(clients.Host.Delete(ctx, o))).To(Succeed()) })
		}
		if change != nil {
			change(o)
		}
		out[o.GetKind()] = o
	}
	Expect(kit.ApplyObjects(ctx, clients.Host, objects)).To(Succeed())
	return out
}

// nested sets a field of an object.
func nested(o *unstructured.Unstructured, value any, path ...string) {
	GinkgoHelper()
	Expect(unstructured.SetNestedField(o.Object, value, path...)).To(Succeed())
}

// inBucket sets what a user of the second example has to.
func (ns *testNamespace) inBucket(bucket string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		parameters := map[string]any{"projectId": "p-1", "secretName": "google-cloud-service-account", "secretNamespace": ns.name, "location": "EUROPE-WEST2"}
		switch o.GetKind() {
		case "StorageClass":
			nested(o, parameters, "parameters")
		case "PersistentVolume":
			nested(o, parameters, "spec", "csi", "volumeAttributes")
			nested(o, bucket, "spec", "csi", "volumeHandle")
		}
	}
}

// secret makes a Secret of one key.
func (ns *testNamespace) secret(ctx context.Context, name, key, value string) {
	GinkgoHelper()
	Expect(clients.Host.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.name, Name: name}, StringData: map[string]string{key: value},
	})).To(Succeed())
}

var _ = Describe("PaV's own examples", Label("pods"), func() {
	BeforeEach(func(ctx context.Context) {
		withPods()
		Expect(packages.Install(ctx, bed.Root(), GinkgoWriter, "pods.txt")).To(Succeed())
		exampleImage(ctx, "ubuntu", "library/ubuntu:20.04", map[string]string{}, nil)
	})

	It("integrate a remote store as they stand, for claims and by hand", func(ctx context.Context) {
		store := GinkgoT().TempDir()
		url := serves(ctx, &webdav.Handler{FileSystem: webdav.Dir(store), LockSystem: webdav.NewMemLS()})
		exampleImage(ctx, "gsutil", "albertofaria/gsutil:5.2", map[string]string{"/bin/rclone": "rclone"}, map[string]string{"/bin/gsutil": gsutil})
		exampleImage(ctx, "gcsfuse", "albertofaria/gcsfuse:0.36.0", map[string]string{"/bin/rclone": "rclone", "/bin/fusermount": "fusermount3"}, map[string]string{"/bin/gcsfuse": gcsfuse})
		ns := newNamespace(ctx)
		ns.secret(ctx, "google-cloud-service-account", "key", url)
		ns.example(ctx, "2-google-cloud-storage", nil)

		By("making a bucket for a claim, and using it on two hosts")
		made := ns.example(ctx, "2-google-cloud-storage-usage-dynamic", ns.inBucket(""))
		pod := client.ObjectKeyFromObject(made["Pod"])
		node := runs(ctx, pod).Spec.NodeName
		sh(ctx, pod, "echo first > /bucket/text && sync")
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns.name, Name: made["PersistentVolumeClaim"].GetName()}}
		pv := bound(ctx, claim)
		bucket := filepath.Join(store, pv.Spec.CSI.VolumeHandle)
		content := func() (string, error) {
			b, err := os.ReadFile(filepath.Join(bucket, "text"))
			return string(b), err
		}
		Eventually(content).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(Equal("first\n"))
		elsewhere := slices.DeleteFunc(bed.Nodes(), func(n string) bool { return n == node })
		other := ns.pod(ctx, "other", elsewhere[0], claim)
		runs(ctx, other)
		Expect(sh(ctx, other, "cat /data-%s/text", claim.Name)).To(Equal("first\n"))

		By("removing it with the claim")
		remove(ctx, podObject(pod))
		remove(ctx, podObject(other))
		remove(ctx, claim)
		gone(ctx, pv)
		_, err := os.Stat(bucket)
		Expect(err).To(MatchError(fs.ErrNotExist))

		By("using a bucket that is there, and keeping it")
		bucket = filepath.Join(store, "by-hand")
		Expect(os.Mkdir(bucket, 0o755)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(bucket, "text"), []byte("older\n"), 0o600)).To(Succeed())
		made = ns.example(ctx, "2-google-cloud-storage-usage-static", ns.inBucket("by-hand"))
		pod = client.ObjectKeyFromObject(made["Pod"])
		runs(ctx, pod)
		Expect(sh(ctx, pod, "cat /bucket/text")).To(Equal("older\n"))
		remove(ctx, podObject(pod))
		remove(ctx, made["PersistentVolumeClaim"])
		remove(ctx, made["PersistentVolume"])
		Expect(content()).To(Equal("older\n"))
	})

	It("encrypt a Block claim behind a DPU as they stand", func(ctx context.Context) {
		mapper := dmcrypt.New(GinkgoT().TempDir())
		DeferCleanup(mapper.Close)
		exampleImage(ctx, "cryptsetup", "albertofaria/cryptsetup:2.4.1",
			map[string]string{"/bin/cryptsetup.real": "cryptsetup", "/bin/jq": "jq", "/bin/blockdev": "blockdev", "/bin/cp.real": "cp"},
			map[string]string{"/bin/cryptsetup": fmt.Sprintf(cryptsetup, serves(ctx, mapper)), "/bin/cp": copiesNodes})
		ns := newNamespace(ctx)
		below := ns.claim(ctx, claim{name: "crypt-underlying-pvc", mode: corev1.PersistentVolumeBlock})
		volume := volumeOf(ctx, below)
		medium := filepath.Join(layout.TargetSource(), vendorVolume(ctx, volume)+".img")
		ns.example(ctx, "3-transparent-encryption", nil)
		made := ns.example(ctx, "3-transparent-encryption-usage", func(o *unstructured.Unstructured) {
			if o.GetKind() == "PersistentVolumeClaim" {
				nested(o, string(corev1.PersistentVolumeBlock), "spec", "volumeMode") // the example lacks it, and its provisioner allows nothing else
			}
		})

		By("writing through it, and keeping the volume below on the node")
		first := client.ObjectKeyFromObject(made["Pod"])
		pod := runs(ctx, first)
		const text = "yes 'no plain text' | head -c 1048576"
		sh(ctx, first, text+" | dd of=/volume bs=64k seek=16 conv=notrunc,fsync")
		Consistently(attachedDPU(pod.Spec.NodeName, volume)).WithContext(ctx).WithTimeout(calm).WithPolling(tick).ShouldNot(BeNil())
		sum := sh(ctx, first, text+" | md5sum")
		const read = "dd if=%s bs=64k skip=16 count=16 iflag=direct 2>/dev/null | md5sum"
		Expect(sh(ctx, first, read, "/volume")).To(Equal(sum))
		wrapping := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns.name, Name: made["PersistentVolumeClaim"].GetName()}}
		size := bound(ctx, wrapping).Spec.Capacity.Storage().Value()
		Expect(sh(ctx, first, "blockdev --getsize64 /volume")).To(Equal(fmt.Sprintln(size)))
		Expect(size).To(And(BeNumerically("<", 64<<20), BeNumerically(">", 32<<20)))

		By("reading it in another pod, and no plain text at the medium")
		remove(ctx, podObject(first))
		again := ns.pod(ctx, "again", "", wrapping)
		runs(ctx, again)
		Expect(sh(ctx, again, read, "/dev/"+wrapping.Name)).To(Equal(sum))
		content, err := os.ReadFile(medium)
		Expect(err).NotTo(HaveOccurred())
		Expect(bytes.HasPrefix(content, []byte("LUKS"))).To(BeTrue())
		Expect(bytes.Contains(content, []byte("plain text"))).To(BeFalse())

		By("erasing its keys with the claim, and giving the claim below back")
		secret := &corev1.Secret{}
		Expect(clients.Host.Get(ctx, client.ObjectKeyFromObject(made["Secret"]), secret)).To(Succeed())
		file := filepath.Join(GinkgoT().TempDir(), "passphrase")
		Expect(os.WriteFile(file, secret.Data["passphrase"], 0o600)).To(Succeed())
		opens := func() error {
			return exec.CommandContext(ctx, "cryptsetup", "open", "--test-passphrase", "--key-file", file, medium).Run()
		}
		Expect(opens()).To(Succeed())
		remove(ctx, podObject(again))
		pv := bound(ctx, wrapping)
		remove(ctx, wrapping)
		gone(ctx, pv)
		Expect(opens()).NotTo(Succeed())
		remove(ctx, below)
	})
})
