package writer

import (
	"slices"
	"strings"
	"testing"
	"time"

	moorv1alpha1 "github.com/moor-storage/moor/api/moor/v1alpha1"
	"github.com/moor-storage/moor/pkg/power"
)

// powerRecord is the machine that is on record in these tests.
var powerRecord = power.Identity{SerialNumber: "S1", UUID: "u-1"}

// seconds is a time of these tests: the claim is in Fencing from 0 on.
func seconds(s int) time.Time { return clockNow.Add(time.Duration(s) * time.Second) }

// read is a reading of the machine at a second.
func read(at int, state power.State, change ...func(*power.Reading)) power.Reading {
	r := power.Reading{At: seconds(at), Is: powerRecord, System: state, Chassis: state}
	for _, c := range change {
		c(&r)
	}
	return r
}

// series are readings that are the same but for their times.
func series(state power.State, at ...int) []power.Reading {
	var out []power.Reading
	for _, s := range at {
		out = append(out, read(s, state))
	}
	return out
}

func isAnother(r *power.Reading) { r.Is.SerialNumber = "S2" }

// offPower is a host that was switched off in order, with a drain of 10 s.
func offPower() Power {
	return Power{
		Asked: true, ByHost: true, Want: powerRecord, Fencing: seconds(0), Accepted: seconds(2), Before: read(1, power.StateOn),
		Readings: append(series(power.StateOn, 3), series(power.StateOff, 6, 16, 26, 31)...), Drain: 10 * time.Second, Now: seconds(32),
	}
}

// wasOff makes it a host that was off already, and its DPU silent for long, with readings for
// as long as that takes.
func wasOff(p *Power) {
	p.Before, p.Readings, p.Now = read(1, power.StateOff), series(power.StateOff, 4, 10, 16), seconds(17)
}

// resetPower is a DPU that was reset in order.
func resetPower() Power {
	before := read(1, power.StateOn, func(r *power.Reading) { r.LastReset, r.Stage = seconds(-5000), power.StageRunning })
	p := Power{Asked: true, Want: powerRecord, Fencing: seconds(0), Accepted: seconds(2), Before: before, Drain: 10 * time.Second, Now: seconds(18)}
	p.Readings = []power.Reading{before}
	p.Readings[0].At = seconds(3)
	for _, at := range []int{6, 11, 17} {
		p.Readings = append(p.Readings, read(at, power.StateOn, func(r *power.Reading) { r.LastReset, r.Stage = seconds(-4000), power.StageBooting }))
	}
	return p
}

// TestPowerOff: each way in which a BMC, or who asks it, can be wrong about a host.
func TestPowerOff(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Power)
		words  string // "" if it is proven
	}{
		"off":                                  {func(*Power) {}, ""},
		"off before our request, and after it": {func(p *Power) { wasOff(p) }, ""},
		"off before, for less than the drain takes":     {func(p *Power) { wasOff(p); p.Readings[2].At = seconds(15) }, "and 3 over 15s are needed"},
		"off before, by too few readings":               {func(p *Power) { wasOff(p); p.Readings = p.Readings[1:] }, "off by 2 readings over 15s"},
		"off before, and the DPU was heard before that": {func(p *Power) { wasOff(p); p.Heard = seconds(-12) }, ""},
		"off before, and the DPU was heard just then":   {func(p *Power) { wasOff(p); p.Heard = seconds(-11) }, "and 3 over 25s are needed"},
		"off long before":                               {func(p *Power) { wasOff(p); p.Fencing, p.Before.At = seconds(-20), seconds(-13) }, "and 3 over 25s are needed"},
		"off before the fence":                          {func(p *Power) { wasOff(p); p.Fencing = seconds(1) }, "and 3 over 25s are needed"},
		"another machine was off before":                {func(p *Power) { wasOff(p); isAnother(&p.Before) }, "and 3 over 25s are needed"},
		"off before, and its chassis on":                {func(p *Power) { wasOff(p); p.Before.Chassis = power.StateOn }, "and 3 over 25s are needed"},
		"on before, and off for as short":               {func(p *Power) { wasOff(p); p.Before.System = power.StateOn }, "and 3 over 25s are needed"},
		"off before, and on in between": {func(p *Power) {
			wasOff(p)
			p.Readings = append(series(power.StateOn, 3), p.Readings...)
		}, "and 3 over 25s are needed"},
		"no chassis": {func(p *Power) {
			for i := range p.Readings {
				p.Readings[i].Chassis = ""
			}
		}, ""},
		"nothing on record":           {func(p *Power) { p.Want = power.Identity{} }, "no serial number is on record"},
		"not accepted":                {func(p *Power) { p.Accepted, p.Trouble = time.Time{}, "the BMC refuses the credentials" }, "not accepted a request of ours since the right to write is being taken back; the BMC refuses the credentials"},
		"accepts and does nothing":    {func(p *Power) { p.Readings = series(power.StateOn, 3, 6, 16, 26, 31) }, "is On at"},
		"no state":                    {func(p *Power) { p.Readings = series(power.StateUnknown, 6, 16, 26, 31) }, "is Unknown at"},
		"all read before our request": {func(p *Power) { p.Accepted = seconds(31) }, "no reading of the host with serial number S1"},
		"all but one read before":     {func(p *Power) { p.Accepted = seconds(26) }, "off by 1 readings over 0s"},
		"read before the fence":       {func(p *Power) { p.Fencing = seconds(16) }, "off by 2 readings over 5s"},
		"accepted before the fence": {func(p *Power) {
			p.Fencing, p.Readings, p.Now = seconds(4), series(power.StateOff, 5, 15, 25, 30), seconds(31)
		}, ""},
		"too few readings":              {func(p *Power) { p.Readings, p.Drain = series(power.StateOff, 16, 31), 0 }, "off by 2 readings over 15s since"},
		"too short":                     {func(p *Power) { p.Readings = series(power.StateOff, 7, 16, 26, 31) }, "off by 4 readings over 24s"},
		"before the drain":              {func(p *Power) { p.Drain = 11 * time.Second }, "and 3 over 26s are needed"},
		"another machine":               {func(p *Power) { p.Readings[4].Is.SerialNumber = "S2" }, `serial number "S2"`},
		"another machine in the middle": {func(p *Power) { p.Readings[2].Is.SerialNumber = "S2" }, "off by 2 readings over 5s"},
		"another UUID":                  {func(p *Power) { p.Readings[4].Is.UUID = "u-2" }, `UUID "u-2"`},
		"on in the middle":              {func(p *Power) { p.Readings[2].System = power.StateOn }, "off by 2 readings over 5s"},
		"on at the end":                 {func(p *Power) { p.Readings[4].System, p.Readings[4].RestorePolicy = power.StateOn, "AlwaysOn" }, `though our request was accepted (power restore policy "AlwaysOn")`},
		"powering off at the end":       {func(p *Power) { p.Readings[4].System = "PoweringOff" }, "is PoweringOff at"},
		"its chassis is on":             {func(p *Power) { p.Readings[4].Chassis = power.StateOn }, "its chassis to be On"},
		"its chassis is unknown":        {func(p *Power) { p.Readings[4].Chassis = power.StateUnknown }, "its chassis to be Unknown"},
		"no more readings than needed":  {func(p *Power) { p.Readings = series(power.StateOff, 6, 19, 31) }, ""},
		"as old as it may be":           {func(p *Power) { p.Now = seconds(46) }, ""},
		"a gap as long as it may be":    {func(p *Power) { p.Readings = series(power.StateOff, 6, 21, 31) }, ""},
		"a gap":                         {func(p *Power) { p.Readings = series(power.StateOff, 6, 11, 27, 32); p.Now = seconds(32) }, "off by 2 readings over 5s"},
		"a gap after the first":         {func(p *Power) { p.Readings = series(power.StateOff, 6, 22, 31) }, "off by 2 readings over 9s"},
		"a last reading that is old":    {func(p *Power) { p.Now, p.Trouble = seconds(47), "the BMC does not answer" }, "is 16s old; the BMC does not answer"},
		"the DPU is heard":              {func(p *Power) { p.Heard = seconds(17) }, "without a sign of life of the DPU"},
		"the DPU is heard at the end":   {func(p *Power) { p.Heard = seconds(32) }, "no reading"},
		"the DPU was heard before":      {func(p *Power) { p.Heard = seconds(5) }, ""},
	} {
		p := offPower()
		c.change(&p)
		checkPower(t, name, p, c.words)
	}
}

func checkPower(t *testing.T, name string, p Power, words string) {
	t.Helper()
	proven, missing := JudgePower(p)
	if (proven == "") == (missing == "") || (words == "") != (missing == "") || !strings.Contains(missing, words) || strings.HasSuffix(missing, "; ") {
		t.Errorf("%s: proven %q, missing %q, want %q", name, proven, missing, words)
	}
}

// TestPowerReset: the same of a DPU that is reset.
func TestPowerReset(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Power)
		words  string
	}{
		"reset": {func(*Power) {}, ""},
		"by the time of its reset alone": {func(p *Power) {
			for i := range p.Readings {
				p.Readings[i].Stage = power.StageUnknown
			}
		}, ""},
		"by its boot alone, which goes on": {func(p *Power) {
			p.Before.LastReset = time.Time{}
			p.Readings[3].Stage = power.StageRunning
		}, ""},
		"by its boot alone, which was over at the next": {func(p *Power) {
			p.Before.LastReset = time.Time{}
			p.Readings[2].Stage, p.Readings[3].Stage = power.StageRunning, power.StageRunning
		}, ""},
		"nothing on record":              {func(p *Power) { p.Want = power.Identity{} }, "no serial number is on record"},
		"not accepted":                   {func(p *Power) { p.Accepted = time.Time{} }, "has not accepted a request"},
		"accepted before the fence":      {func(p *Power) { p.Fencing = seconds(3) }, "has not accepted a request of ours since"},
		"read before the fence":          {func(p *Power) { p.Fencing = seconds(1) }, "was before our request was not read since"},
		"another machine was read first": {func(p *Power) { isAnother(&p.Before) }, "was before our request was not read since"},
		"accepts and does nothing": {func(p *Power) {
			for i := range p.Readings {
				p.Readings[i].LastReset, p.Readings[i].Stage = p.Before.LastReset, p.Before.Stage
			}
		}, "a reset of the DPU with serial number S1 is not seen"},
		"its operating system runs on": {func(p *Power) {
			p.Before.LastReset = time.Time{}
			for i := range p.Readings {
				p.Readings[i].Stage = power.StageRunning
			}
		}, "is not seen"},
		"it boots, as it did before": {func(p *Power) { p.Before.LastReset, p.Before.Stage = time.Time{}, power.StageBooting }, "is not seen"},
		"no stage is known":          {func(p *Power) { p.Before.LastReset, p.Before.Stage = time.Time{}, power.StageUnknown }, "is not seen"},
		"its clock goes back": {func(p *Power) {
			for i := range p.Readings {
				p.Readings[i].LastReset, p.Readings[i].Stage = seconds(-6000), power.StageUnknown
			}
		}, "is not seen"},
		"it is off: that alone is no reset":     {func(p *Power) { p.Readings = series(power.StateOff, 6, 11, 17) }, "is not seen"},
		"another machine":                       {func(p *Power) { isAnother(&p.Readings[2]) }, `serial number "S2"`},
		"the DPU is heard":                      {func(p *Power) { p.Heard = seconds(6) }, "is heard since: it can withdraw"},
		"the DPU was heard before":              {func(p *Power) { p.Heard = seconds(5) }, ""},
		"too few readings":                      {func(p *Power) { p.Readings = slices.Delete(p.Readings, 2, 3) }, "what the storage had received may take until"},
		"before the drain":                      {func(p *Power) { p.Drain = 12 * time.Second }, "may take until"},
		"when the drain is just over":           {func(p *Power) { p.Drain = 11 * time.Second }, ""},
		"as old as it may be":                   {func(p *Power) { p.Now = seconds(32) }, ""},
		"a last reading that is old":            {func(p *Power) { p.Now = seconds(33) }, "is 16s old"},
		"all but two were before it was asked":  {func(p *Power) { p.Accepted, p.Drain = seconds(6), 0 }, "may take until"},
		"what is said of the host is not of it": {func(p *Power) { p.ByHost = true }, "is On at"},
	} {
		p := resetPower()
		c.change(&p)
		checkPower(t, name, p, c.words)
	}
}

// TestPowerWords: who reads them learns what is missing and since when, and nothing where
// there is nothing to say.
func TestPowerWords(t *testing.T) {
	bare, troubled, off := offPower(), offPower(), offPower()
	bare.Readings = nil
	troubled.Asked, troubled.Trouble = false, "no BMC is on record"
	for name, c := range map[string]struct {
		power *Power
		want  string
	}{
		"nothing is known":       {nil, ""},
		"nothing is asked":       {&Power{}, ""},
		"no BMC may be asked":    {&troubled, "; power: no BMC is on record"},
		"what is missing":        {&bare, "; power: no reading of the host with serial number S1, from which the DPU has its power, has come since our request was accepted"},
		"nothing is missing":     {&off, ""},
		"an asked one's trouble": {new(Power{Asked: true, Want: powerRecord, Trouble: "it does not answer"}), "; power: its BMC has not accepted a request of ours since the right to write is being taken back; it does not answer"},
	} {
		if got := c.power.Words(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if proven, _ := JudgePower(off); !strings.Contains(proven, "is off since "+seconds(6).UTC().Format(time.RFC3339)+", by 4 readings") {
		t.Errorf("since when it is off is not told: %q", proven)
	}
}

// TestPowerPeriod: four readings in a row may be lost without a gap in the series.
func TestPowerPeriod(t *testing.T) {
	if 5*PowerPeriod > PowerGap {
		t.Errorf("a machine is read each %s, and a gap is longer than %s", PowerPeriod, PowerGap)
	}
}

// TestProveByPower: what is proven of the power is a receipt for a claim in Fencing alone,
// and what is missing is told.
func TestProveByPower(t *testing.T) {
	bare := offPower()
	bare.Readings = nil
	other := offPower()
	other.Asked, other.Trouble = false, "no BMC is on record"
	claim, mirror := facts("mine", true, true, true, 0, 0)
	for name, c := range map[string]struct {
		evidence Evidence
		kind     moorv1alpha1.ReceiptKind
		words    string
	}{
		"off":                        {Evidence{Attachment: mirror, Power: new(offPower())}, moorv1alpha1.ReceiptPower, "DPU dpu-a has lost all that it had: the host with serial number S1"},
		"the attachment is gone":     {Evidence{Power: new(offPower())}, moorv1alpha1.ReceiptPower, ""},
		"reset":                      {Evidence{Attachment: mirror, Power: new(resetPower())}, moorv1alpha1.ReceiptPower, "was reset after our request"},
		"not read":                   {Evidence{Attachment: mirror, Power: &bare}, "", "; power: no reading of the host"},
		"no BMC is on record":        {Evidence{Attachment: mirror, Power: &other}, "", "; power: no BMC is on record"},
		"not asked, and not told of": {Evidence{Attachment: mirror, Power: &Power{}}, "", "waiting for proof"},
	} {
		receipt, missing := Prove(claim, c.evidence)
		if (receipt == nil) != (c.kind == "") || receipt != nil && (receipt.Kind != c.kind || !strings.Contains(receipt.Message, c.words)) || receipt == nil && !strings.Contains(missing, c.words) {
			t.Errorf("%s: receipt %+v, missing %q, want %s %q", name, receipt, missing, c.kind, c.words)
		}
		if _, err := Free(claim, moorv1alpha1.Receipt{Kind: moorv1alpha1.ReceiptPower, Holder: "dpu-a", AttachmentUID: "a", Epoch: 4}, clockNow); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	held := claim.DeepCopy()
	held.Status.Phase = moorv1alpha1.ClaimGranted
	if receipt, _ := Prove(held, Evidence{Attachment: mirror, Power: new(offPower())}); receipt != nil {
		t.Errorf("a claim that is not being fenced has receipt %+v", receipt)
	}
	if _, err := Free(held, moorv1alpha1.Receipt{Kind: moorv1alpha1.ReceiptPower, Holder: "dpu-a", AttachmentUID: "a", Epoch: 4}, clockNow); err == nil {
		t.Error("a claim that is not being fenced is freed by the power of its DPU")
	}
	unnumbered := claim.DeepCopy()
	unnumbered.Status.Epoch = 0
	if receipt, _ := Prove(unnumbered, Evidence{Attachment: mirror, Power: new(offPower())}); receipt != nil {
		t.Errorf("a claim without an epoch has receipt %+v", receipt)
	}
	unnumbered.Status.Epoch = 1
	if receipt, missing := Prove(unnumbered, Evidence{Attachment: mirror, Power: new(offPower())}); receipt == nil || receipt.Kind != moorv1alpha1.ReceiptPower {
		t.Errorf("the first epoch has receipt %+v: %s", receipt, missing)
	}
	freed, err := Free(claim, moorv1alpha1.Receipt{Kind: moorv1alpha1.ReceiptPower, Holder: "dpu-a", AttachmentUID: "a", Epoch: 4}, clockNow)
	if err != nil || freed.Status.RevokedEpoch("dpu-a") != 4 {
		t.Errorf("that the DPU has to clear up is not on record: %+v, %v", freed, err)
	}
}
