package failover

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	storagev1alpha1 "github.com/moor-storage/moor/api/storage/v1alpha1"
	"github.com/moor-storage/moor/internal/kube/kubetest"
	"github.com/moor-storage/moor/pkg/controller/failover/lostpath"
	"github.com/moor-storage/moor/pkg/controller/failover/powerproof"
	"github.com/moor-storage/moor/pkg/nodehealth"
)

// fencePass is a pass over host a, which is dead and whose failover has begun, and its
// target: dpu-a holds vol under epoch 4, and is silent.
func fencePass() (*pass, *target) {
	n := kubetest.DPUStorageNode("a")
	n.Spec.DPUName = "dpu-a"
	t := &target{attachment: kubetest.DPUVolumeAttachment("vol", "a"), volume: kubetest.DPUVolume("vol"), single: true, fails: true}
	t.claim, t.mirror = kubetest.WriterClaim("vol", "dpu-a", "a-vol", 4), kubetest.VolumeAttachment("a-vol", "vol", "dpu-a")
	t.claim.UID, t.mirror.UID, t.mirror.Spec.Epoch = "claim", t.claim.Status.AttachmentUID, 4
	p := &pass{
		node: n, now: kubetest.Begin, state: BothDead, action: Fence, underway: true, targets: []*target{t},
		observation: nodehealth.Observation{DPU: nodehealth.Stale}, heartbeat: func(string) nodehealth.Beat { return nodehealth.Stale },
	}
	return p, t
}

func strangeHolder(_ *pass, t *target) {
	t.claim.Status.Holder, t.mirror.Spec.NodeName = "dpu-z", "dpu-z"
}

func pathLost(_ *pass, t *target) { t.path = &lostpath.Verdict{Move: true, Words: "its path is lost"} }

func operatorsWord(p *pass, t *target) {
	now := metav1.NewTime(p.now)
	t.claim.Spec.OperatorReceipt = &moorv1alpha1.OperatorReceipt{
		Epoch: 4, Holder: t.claim.Status.Holder, AttachmentUID: t.claim.Status.AttachmentUID, Time: &now, Operator: "jo", Reason: "pulled the plug",
	}
}

func notBegun(p *pass, _ *target)     { p.underway = false }
func dpuHeard(p *pass, _ *target)     { p.state, p.observation.DPU = HostDead, nodehealth.Fresh }
func doesNotFail(_ *pass, t *target)  { t.fails = false }
func evicted(p *pass, _ *target)      { p.state, p.action = DPUDead, Evict }
func isHeld(p *pass, _ *target)       { p.state, p.action = DPUDead, Hold }
func wasRequested(p *pass, _ *target) { p.request.counts = true }
func inTheFence(_ *pass, t *target)   { t.claim.Status.Phase = fencing }
func together(all ...func(*pass, *target)) func(*pass, *target) {
	return func(p *pass, t *target) {
		for _, change := range all {
			change(p, t)
		}
	}
}

// TestMayFence: from whom the right to write may be taken, and by what.
func TestMayFence(t *testing.T) {
	for name, tc := range map[string]struct {
		is   func(*pass, *target)
		want bool
	}{
		"a dead host":                               {together(), true},
		"one whose failover has not begun":          {notBegun, false},
		"of a volume that does not fail over":       {doesNotFail, false},
		"a host that is held":                       {isHeld, false},
		"one whose DPU has taken the volumes":       {evicted, true},
		"and its failover has not begun":            {together(evicted, notBegun), false},
		"a dead host, of another DPU":               {strangeHolder, true},
		"a living host, of another DPU":             {together(evicted, strangeHolder), false},
		"requested, of another DPU":                 {together(evicted, strangeHolder, wasRequested), true},
		"requested, and held":                       {together(isHeld, wasRequested), false},
		"a lost path":                               {together(isHeld, notBegun, pathLost), true},
		"a lost path of another DPU":                {together(isHeld, notBegun, pathLost, strangeHolder), false},
		"a path that is lost and stays":             {together(isHeld, func(_ *pass, t *target) { t.path = &lostpath.Verdict{} }), false},
		"an operator's word":                        {together(isHeld, notBegun, doesNotFail, operatorsWord), true},
		"an operator's word while the DPU is heard": {together(isHeld, notBegun, operatorsWord, dpuHeard), false},
		"an operator's word, of another DPU":        {together(isHeld, notBegun, strangeHolder, operatorsWord), true},
	} {
		p, target := fencePass()
		tc.is(p, target)
		if got := p.mayFence(target); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}

// TestPowerOf: machines are asked for only where a failover takes the volume from the host's
// own DPU; a host is switched off only if it is taken for dead, and a DPU that is heard is
// not reset.
func TestPowerOf(t *testing.T) {
	const none = ""
	for name, tc := range map[string]struct {
		source moorv1alpha1.DPUPowerSource
		is     func(*pass, *target)
		want   string
	}{
		"a dead host":                        {moorv1alpha1.DPUPowerHost, inTheFence, "the BMC of the host is asked"},
		"a dead host with a card":            {moorv1alpha1.DPUPowerOwn, inTheFence, "the BMC of the DPU is asked"},
		"an evicted host with a card":        {moorv1alpha1.DPUPowerOwn, together(inTheFence, evicted), "the BMC of the DPU is asked"},
		"an evicted host":                    {moorv1alpha1.DPUPowerHost, together(inTheFence, evicted), "the BMC of the DPU is asked"},
		"a dead host whose DPU is heard":     {moorv1alpha1.DPUPowerOwn, together(inTheFence, dpuHeard), "the host is switched off, so that DPU dpu-a, which is heard, can let go"},
		"an evicted host, its DPU heard":     {moorv1alpha1.DPUPowerOwn, together(inTheFence, evicted, dpuHeard), "so neither is touched"},
		"the fence has not begun":            {moorv1alpha1.DPUPowerHost, together(), none},
		"the failover has not begun":         {moorv1alpha1.DPUPowerHost, together(inTheFence, notBegun), none},
		"a host that is back":                {moorv1alpha1.DPUPowerHost, together(inTheFence, isHeld), none},
		"a volume that moves for its path":   {moorv1alpha1.DPUPowerHost, together(inTheFence, pathLost), none},
		"a DPU that is not in the host":      {moorv1alpha1.DPUPowerHost, together(inTheFence, strangeHolder), none},
		"a volume of which there is no more": {moorv1alpha1.DPUPowerHost, func(_ *pass, t *target) { t.claim = nil }, none},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.bmcs(tc.source)
			p, target := fencePass()
			tc.is(p, target)
			for _, wait := range []time.Duration{powerproof.DefaultAfter, 0} {
				power, err := s.f.fencer.powerOf(t.Context(), p, target, false)
				switch {
				case err != nil:
					t.Fatal(err)
				case (tc.want == none || wait > 0) != (power == nil):
					t.Fatalf("%+v is known", power)
				case power != nil && !strings.Contains(power.Trouble, tc.want):
					t.Errorf("%q, want %q", power.Trouble, tc.want)
				}
				s.Step(wait)
			}
		})
	}
}

// TestPowerOfAClaimThatIsFree: what was asked for a claim is not done any more once another's
// word has freed it: a claim that is fenced again begins anew.
func TestPowerOfAClaimThatIsFree(t *testing.T) {
	s := newFixture(t)
	s.bmcs(moorv1alpha1.DPUPowerHost)
	p, target := fencePass()
	ask := func(want bool) {
		t.Helper()
		inTheFence(p, target)
		power, err := s.f.fencer.powerOf(t.Context(), p, target, false)
		if err != nil || (power != nil) != want {
			t.Fatalf("%+v, %v is known", power, err)
		}
	}
	ask(false)
	s.Step(powerproof.DefaultAfter)
	ask(true)
	free := target.claim.DeepCopy()
	free.Status = &moorv1alpha1.WriterClaimStatus{Phase: freed, Epoch: 4}
	held := target.claim
	target.claim = free
	if err := s.f.fencer.fence(t.Context(), p, target); err != nil {
		t.Fatal(err)
	}
	target.claim = held
	ask(false)
}

// TestPowerIsForgotten: nothing of a host is touched any more once nothing is taken from it.
func TestPowerIsForgotten(t *testing.T) {
	for name, tc := range map[string]struct {
		is      func(*pass, *target)
		forgets bool
	}{
		"it fails over":       {together(), false},
		"nothing has begun":   {notBegun, true},
		"it is not dead":      {isHeld, true},
		"its DPU withdraws":   {evicted, false},
		"others are released": {func(p *pass, _ *target) { p.yields = true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.bmcs(moorv1alpha1.DPUPowerHost)
			p, target := fencePass()
			inTheFence(p, target)
			if _, err := s.f.fencer.powerOf(t.Context(), p, target, false); err != nil {
				t.Fatal(err)
			}
			s.Step(powerproof.DefaultAfter)
			then, of := fencePass()
			inTheFence(then, of)
			if tc.is(then, of); s.f.fencer.switchOn(t.Context(), then) != nil {
				t.Fatal("it fails")
			}
			power, err := s.f.fencer.powerOf(t.Context(), p, target, false)
			if err != nil || (power == nil) != tc.forgets {
				t.Errorf("%+v is known, %v", power, err)
			}
		})
	}
}

// TestSwitchOn: a host that was switched off is switched on again once no right to write is
// held for it, and only in its failover; a person is told of one that is taken for dead.
func TestSwitchOn(t *testing.T) {
	isFree := func(_ *pass, t *target) { t.claim.Status = &moorv1alpha1.WriterClaimStatus{Phase: freed, Epoch: 4} }
	for name, tc := range map[string]struct {
		is   func(*pass, *target)
		told bool
	}{
		"all is free":            {isFree, true},
		"one is held":            {together(), false},
		"one is being fenced":    {inTheFence, false},
		"nothing has begun":      {together(isFree, notBegun), false},
		"others come first":      {together(isFree, func(p *pass, _ *target) { p.yields = true }), false},
		"it is not taken for so": {together(isFree, evicted), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.bmcs(moorv1alpha1.DPUPowerHost)
			kubetest.Change(s.Host, &moorv1alpha1.PowerControl{ObjectMeta: kubetest.HostObject("a")}, func(c *moorv1alpha1.PowerControl) {
				now := metav1.NewTime(s.Clock.Now())
				c.Status.HostOff = &now
			})
			p, target := fencePass()
			tc.is(p, target)
			if err := s.f.fencer.switchOn(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			told := len(p.waits) == 1 && strings.Contains(p.waits[0], "is being switched on again")
			if told != tc.told || !told && len(p.waits) > 0 {
				t.Errorf("told %q", p.waits)
			}
		})
	}
}

// TestLetGo: the holds of a DPU are taken off only if it is silent, the host cluster lets go
// too, the epoch is over and it is on record that the DPU has to clear up.
func TestLetGo(t *testing.T) {
	for name, tc := range map[string]struct {
		is   func(*pass, *target)
		goes bool
	}{
		"all is so":        {together(), true},
		"the DPU is heard": {dpuHeard, false},
		"another DPU, heard": {func(p *pass, _ *target) {
			p.node.Spec.DPUName = "dpu-c"
			p.heartbeat = func(string) nodehealth.Beat { return nodehealth.Fresh }
		}, false},
		"another DPU, silent": {func(p *pass, _ *target) { p.node.Spec.DPUName, p.observation.DPU = "dpu-c", nodehealth.Fresh }, true},
		"another DPU, never seen": {func(p *pass, _ *target) {
			p.node.Spec.DPUName = "dpu-c"
			p.heartbeat = func(string) nodehealth.Beat { return nodehealth.Unknown }
		}, false},
		"the owner stays":       {func(_ *pass, t *target) { t.attachment.DeletionTimestamp = nil }, false},
		"the epoch is not over": {func(_ *pass, t *target) { t.claim = kubetest.WriterClaim("vol", "dpu-a", "a-vol", 4) }, false},
		"nothing is on record":  {func(_ *pass, t *target) { t.claim.Status.Revoked = nil }, false},
		"an earlier epoch is":   {func(_ *pass, t *target) { t.claim.Status.Revoked[0].Epoch = 3 }, false},
		"there is none":         {func(_ *pass, t *target) { t.mirror = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t)
			s.DPU.Remove(kubetest.VolumeAttachment("a-vol", "vol", "dpu-a"))
			p, target := fencePass()
			target.mirror, _ = kubetest.Read(s.DPU, target.mirror)
			now := metav1.NewTime(s.Clock.Now())
			target.attachment.DeletionTimestamp = &now
			target.claim.Status = &moorv1alpha1.WriterClaimStatus{Phase: freed, Epoch: 4, Revoked: []moorv1alpha1.Revoked{{DPU: "dpu-a", Epoch: 4}}}
			tc.is(p, target)
			if err := s.f.fencer.letGo(t.Context(), p, target); err != nil {
				t.Fatal(err)
			}
			m, _ := kubetest.Read(s.DPU, kubetest.VolumeAttachment("a-vol", "vol", "dpu-a"))
			if goes := slices.Equal(m.Finalizers, []string{storagev1alpha1.FinalizerVolumeAttachment}); goes != tc.goes {
				t.Errorf("finalizers %v", m.Finalizers)
			}
		})
	}
}
