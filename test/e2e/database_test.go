//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/test/database"
	"github.com/moor-storage/moor/test/devcluster"
	"github.com/moor-storage/moor/test/devcluster/ociimage"
	"github.com/moor-storage/moor/test/devcluster/packages"
	"github.com/moor-storage/moor/test/kit"
)

const (
	databaseImage = "docker.io/library/postgresql:local"
	// databaseHome and databaseShare are where Debian's package has PostgreSQL
	// (hack/apt/database.txt).
	databaseHome  = "/usr/lib/postgresql/15"
	databaseShare = "/usr/share/postgresql/15"
	databasePort  = 5432
	databaseUser  = 65534
	// clientsOfDatabase commit at the same time.
	clientsOfDatabase = 4
	// apiTimeout is how long a client waits for an API server that may be away.
	apiTimeout = time.Second
)

// serveDatabase makes a database, once, and serves it. What it syncs is all that
// PostgreSQL syncs by default. It writes its pages back often, so that faults meet that too.
const serveDatabase = `set -e
export PATH=$PATH:` + databaseHome + `/bin PGDATA=/data/pg
[ -e /data/made ] || { rm -rf $PGDATA; initdb --data-checksums -U postgres -A trust -E UTF8 --locale=C; sync; touch /data/made; sync; }
printf 'local all all trust\nhost all all all trust\n' >/tmp/hba.conf
exec postgres -c hba_file=/tmp/hba.conf -c listen_addresses='*' -c unix_socket_directories=/tmp -c timezone=GMT -c log_timezone=GMT \
  -c fsync=on -c synchronous_commit=on -c full_page_writes=on -c checkpoint_timeout=30s -c max_wal_size=64MB -c shared_buffers=32MB -c max_connections=200`

// postgres is a PostgreSQL on a volume that fails over, and clients that commit to it all
// the time from outside its cluster.
type postgres struct {
	// subject is where it runs; it has no writers of its own.
	subject
	ns     *testNamespace
	client database.Client
	// atRest is how many things it has everywhere, while it runs with its replica.
	atRest int

	mu      sync.Mutex
	address string
}

// newPostgres installs, starts and fills a database, and begins to commit to it.
func newPostgres(ctx context.Context) *postgres {
	GinkgoHelper()
	loadDatabase(ctx)
	p := &postgres{ns: faulty(ctx)}
	p.key = client.ObjectKey{Namespace: p.ns.name, Name: "postgres-0"}
	p.client = database.Client{Address: p.where, Ledger: &database.Ledger{}}
	Expect(clients.Host.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "postgres", Namespace: p.ns.name},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "postgres"}, Ports: []corev1.ServicePort{{Port: databasePort}}},
	})).To(Succeed())
	Expect(clients.Host.Create(ctx, p.set())).To(Succeed())
	p.volume = volumeOf(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-postgres-0", Namespace: p.ns.name}})
	p.record = recorded(ctx, p.volume)
	p.settles(ctx)
	Eventually(p.client.Create).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(Succeed())
	things, err := p.things(ctx)
	Expect(err).NotTo(HaveOccurred())
	p.atRest = len(things)
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() { defer close(ended); p.client.Commit(working, clientsOfDatabase) }()
	DeferCleanup(func() { stop(); <-ended })
	p.commits(ctx, time.Now())
	return p
}

// databaseLoaded is set once all hosts have the image.
var databaseLoaded bool

// loadDatabase brings an image with this machine's PostgreSQL to all hosts, once.
func loadDatabase(ctx context.Context) {
	GinkgoHelper()
	if databaseLoaded {
		return
	}
	Expect(packages.Install(ctx, bed.Root(), GinkgoWriter, "database.txt")).To(Succeed())
	files, err := devcluster.BusyboxFiles(ctx)
	Expect(err).NotTo(HaveOccurred())
	programs := map[string]string{}
	for _, name := range []string{"initdb", "postgres", "pg_amcheck", "pg_checksums", "pg_controldata", "pg_isready"} {
		path := filepath.Join(databaseHome, "bin", name)
		programs[path] = path
	}
	files, err = devcluster.WithPrograms(ctx, files, programs)
	Expect(err).NotTo(HaveOccurred())
	for _, directory := range []string{filepath.Join(databaseHome, "lib"), databaseShare} {
		tree, err := devcluster.Tree(directory, func(path string) bool {
			return strings.Contains(path, "llvmjit") || strings.Contains(path, "/bitcode/")
		})
		Expect(err).NotTo(HaveOccurred())
		files = append(files, tree...)
	}
	Expect(bed.LoadImage(ctx, "postgresql", ociimage.Image{
		Names: []string{databaseImage}, Command: []string{"sh", "-c", serveDatabase}, StopSignal: "SIGINT", Files: files,
	})).To(Succeed())
	databaseLoaded = true
}

// set is the StatefulSet of the database.
func (p *postgres) set() *appsv1.StatefulSet {
	labels := map[string]string{"app": "postgres"}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "postgres", Namespace: p.ns.name},
		Spec: appsv1.StatefulSetSpec{
			ServiceName: "postgres", Replicas: ptr.To(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: databasePod("", corev1.Volume{})},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					StorageClassName: ptr.To("snap-failover"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}},
		},
	}
}

// databasePod is a pod that serves the database or, if command is set, runs that once. PostgreSQL
// does not run as root, and wants its directory for itself: the volume's rights are set once alone.
func databasePod(command string, volumes ...corev1.Volume) corev1.PodSpec {
	spec := corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To(int64(20)),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsUser: ptr.To(int64(databaseUser)), RunAsGroup: ptr.To(int64(databaseUser)), FSGroup: ptr.To(int64(databaseUser)),
			FSGroupChangePolicy: ptr.To(corev1.FSGroupChangeOnRootMismatch),
		},
		Containers: []corev1.Container{{
			Name: "postgres", Image: databaseImage,
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
		}},
	}
	c := &spec.Containers[0]
	if command != "" {
		c.Command = []string{"sh", "-c", command}
		spec.RestartPolicy, spec.Volumes = corev1.RestartPolicyNever, volumes
		return spec
	}
	c.Ports = []corev1.ContainerPort{{ContainerPort: databasePort}}
	c.ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(databasePort)}},
		PeriodSeconds: 1,
	}
	return spec
}

// where is the address behind the Service that is ready, as a load balancer outside the cluster
// finds it: what it knew last counts while the API server is away, or none is ready.
func (p *postgres) where(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var found discoveryv1.EndpointSliceList
	err := clients.Host.List(ctx, &found, client.InNamespace(p.ns.name), client.MatchingLabels{discoveryv1.LabelServiceName: "postgres"})
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range found.Items {
		for _, e := range s.Endpoints {
			if ptr.Deref(e.Conditions.Ready, false) && len(e.Addresses) > 0 {
				p.address = net.JoinHostPort(e.Addresses[0], fmt.Sprint(databasePort))
			}
		}
	}
	if p.address == "" {
		return "", fmt.Errorf("no pod of the Service is ready (%v)", err)
	}
	return p.address, nil
}

// commits waits until commits that began after a time are acknowledged.
func (p *postgres) commits(ctx context.Context, after time.Time) {
	GinkgoHelper()
	Eventually(func() int { return p.client.Ledger.BegunSince(after) }).WithContext(ctx).WithTimeout(patience).WithPolling(tick).
		Should(BeNumerically(">", 2*clientsOfDatabase), func() string {
			return fmt.Sprintf("commits are acknowledged; the last failure: %v", p.client.Ledger.Trouble())
		})
}

// moved waits until another pod serves the database.
func (p *postgres) moved(ctx context.Context) {
	GinkgoHelper()
	_, err := kit.AwaitRunning(ctx, clients.Host, p.key, string(p.pod.UID), patience)
	Expect(err).NotTo(HaveOccurred())
}

// settles waits until the database is served where the right to write is, with a replica elsewhere, and
// no host or DPU is unwell; it notes where that is.
func (p *postgres) settles(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		pod := &corev1.Pod{}
		g.Expect(clients.Host.Get(ctx, p.key, pod)).To(Succeed())
		g.Expect(kit.Ready(pod) && pod.DeletionTimestamp.IsZero()).To(BeTrue(), "the pod serves")
		claim := &moorv1alpha1.WriterClaim{}
		g.Expect(clients.DPU.Get(ctx, client.ObjectKey{Namespace: kit.Namespace, Name: p.volume}, claim)).To(Succeed())
		g.Expect(claim.Status).To(HaveValue(And(HaveField("Phase", moorv1alpha1.ClaimGranted), HaveField("Holder", dpuIn(pod.Spec.NodeName)))))
		wrong, err := unwell(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(wrong).To(BeEmpty())
		replica, err := replicaOf(p.volume)(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(replica).NotTo(BeEmpty(), "a replica is ready")
		p.pod, p.host, p.dpu, p.replica = pod, pod.Spec.NodeName, dpuIn(pod.Spec.NodeName), replica
	}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(Succeed())
}

// things is what the database has everywhere: objects of both clusters, and what DPUs, hosts and storage hold.
func (p *postgres) things(ctx context.Context) ([]string, error) {
	now, err := kit.Take(ctx, bed, clients)
	return now.Less(p.ns.before), err
}

// survives does something to what the database depends on, and expects that commits go on, that nothing is
// lost or damaged, and that all is as it was.
func (p *postgres) survives(ctx context.Context, f databaseFault) {
	GinkgoHelper()
	p.settles(ctx)
	By(fmt.Sprintf("%s: %s is the host, %s has the replica", f.name, p.host, p.replica))
	begin := time.Now()
	f.do(ctx, p)
	mended := time.Now()
	p.commits(ctx, mended)
	GinkgoWriter.Printf("%s: over after %s; commits waited %s at most\n", f.name, mended.Sub(begin).Round(tick), p.client.Ledger.Pause(begin).Round(tick))
	p.settles(ctx)
	p.commits(ctx, time.Now())
	p.intact(ctx)
	Eventually(p.things).WithContext(ctx).WithTimeout(patience).WithPolling(tick).
		Should(HaveLen(p.atRest), "nothing is left of where it was")
}

// intact reads everything: the rows, and each page and index.
func (p *postgres) intact(ctx context.Context) {
	GinkgoHelper()
	Eventually(p.client.Check).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeEmpty(), "the rows are those that were acknowledged")
	sh(ctx, p.key, databaseHome+"/bin/pg_amcheck -h /tmp -U postgres -a --install-missing --heapallindexed")
	GinkgoWriter.Printf("%d commits acknowledged so far, none lost\n", len(p.client.Ledger.Acknowledged()))
}

// closes ends the database in order, has each page's checksum looked at, and the history of its volume proven.
func (p *postgres) closes(ctx context.Context) {
	GinkgoHelper()
	p.settles(ctx)
	proven(ctx, p.record, p.volume)
	p.ns.scale(ctx, "postgres", 0)
	gone(ctx, podObject(p.key))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "checksums", Namespace: p.ns.name},
		Spec: databasePod(databaseHome+"/bin/pg_checksums --check -D /data/pg >/dev/termination-log 2>&1", corev1.Volume{
			Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-postgres-0"}},
		}),
	}
	Expect(clients.Host.Create(ctx, pod)).To(Succeed())
	Eventually(func(ctx context.Context) (corev1.PodPhase, error) {
		err := clients.Host.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return pod.Status.Phase, err
	}).WithContext(ctx).WithTimeout(patience).WithPolling(tick).Should(BeElementOf(corev1.PodSucceeded, corev1.PodFailed))
	said := pod.Status.ContainerStatuses[0].State.Terminated
	Expect(said).NotTo(BeNil())
	GinkgoWriter.Println(said.Message)
	Expect(said.ExitCode).To(BeZero(), said.Message)
	Expect(slices.Collect(strings.Lines(said.Message))).To(ContainElement(MatchRegexp(`^Bad checksums: +0\n?$`)))
}
