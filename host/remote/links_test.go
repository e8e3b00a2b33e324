package remote

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caponier-mcp/caponier/host/remote/sshtest"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/caponier-mcp/caponier/sdk/abi"
)

// Trees with links at random places, and paths through them: the real path that is decided on is
// the one that the file system has, with a server that replaces links and with one that does not.
func TestTheRealPathIsThatOfTheFileSystem(t *testing.T) {
	_, o := openSSH(t)
	servers := map[string]*Remote{"OpenSSH": start(t, o),
		"a server that leaves links": newRemote(t, sshtest.New(t, sshtest.Options{}))}
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	all := []string{top}
	for i := range 150 {
		in := all[rand.IntN(len(all))]
		if info, err := os.Stat(in); err != nil || !info.IsDir() {
			continue
		}
		p, to := filepath.Join(in, fmt.Sprint(i)), all[rand.IntN(len(all))]
		switch rand.IntN(5) {
		case 0:
			os.Mkdir(p, 0o755)
		case 1:
			os.WriteFile(p, nil, 0o644)
		case 2:
			os.Symlink(to, p)
		case 3:
			if rel, err := filepath.Rel(in, to); err == nil {
				os.Symlink(rel, p)
			}
		case 4:
			os.Symlink(filepath.Join(to, fmt.Sprint(rand.IntN(150))), p)
		}
		all = append(all, p)
	}
	for name, r := range servers {
		good := 0
		for _, p := range all {
			want, werr := filepath.EvalSymlinks(p)
			q := question(abi.SFTPStat{OnNode: on("n1"), Path: p})
			q.Phase = terms.PhaseLookup
			facts, err := r.Lookup(t.Context(), q)
			switch {
			case werr == nil && err != nil && strings.Contains(err.Error(), "too many"):
				// the host follows fewer links than the file system
			case werr == nil && err != nil:
				t.Errorf("%s: %s: %v", name, p, err)
			case werr == nil && (facts.File.RealPath != want || !facts.File.Exists):
				t.Errorf("%s: %s: %+v, want %s", name, p, facts.File, want)
			case werr != nil && err == nil && facts.File.Exists:
				t.Errorf("%s: %s: %+v, but %v", name, p, facts.File, werr)
			case werr == nil:
				good++
			}
		}
		if good < len(all)/3 {
			t.Errorf("%s: only %d of %d paths lead anywhere", name, good, len(all))
		}
	}
}

// While somebody on the node swaps files, directories and links, many downloads are under way. Each
// ends with the bytes of the file that was decided on, or fails: never with those of a secret.
func TestASwapDuringManyDownloadsShowsNoSecret(t *testing.T) {
	_, o := openSSH(t)
	r := start(t, o)
	d := t.TempDir()
	write(t, d+"/secret/f", []byte("secret"))
	for i := range 8 {
		write(t, fmt.Sprintf("%s/%d/f", d, i), bytes.Repeat([]byte("public"), 1+i*3000))
		os.Chmod(fmt.Sprintf("%s/%d/f", d, i), 0o644)
	}
	stop := make(chan struct{})
	var swapping, all sync.WaitGroup
	swapping.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			dir := fmt.Sprintf("%s/%d", d, n%8)
			if n%2 == 0 { // the directory, or the file in it
				os.Rename(dir, dir+"-old")
				os.Symlink("secret", dir)
				time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond)
				os.Remove(dir)
				os.Rename(dir+"-old", dir)
			} else {
				os.Rename(dir+"/f", dir+"/old")
				os.Symlink("../secret/f", dir+"/f")
				time.Sleep(time.Duration(rand.IntN(500)) * time.Microsecond)
				os.Remove(dir + "/f")
				os.Rename(dir+"/old", dir+"/f")
			}
			time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
		}
	})
	var mu sync.Mutex
	good, bad := 0, map[string]int{}
	for i := range 400 {
		all.Go(func() {
			local := fmt.Sprint("out/", i)
			q := question(abi.SFTPGet{OnNode: on("n1"), Path: fmt.Sprintf("%s/%d/f", d, i%8),
				Local: local})
			q.Phase = terms.PhaseLookup
			facts, err := r.Lookup(t.Context(), q)
			if err == nil && strings.Contains(facts.File.RealPath, "secret") {
				return // policy refuses it
			}
			if err == nil {
				q.Phase, q.Facts = terms.PhaseEffect, facts
				_, err = r.Execute(t.Context(), q, yellow)
			}
			got, _ := os.ReadFile(filepath.Join(o.Workspace, "agent-a", local))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				code, _, _ := strings.Cut(err.Error(), " ")
				bad[code]++
			} else {
				good++
			}
			if want := bytes.Repeat([]byte("public"), 1+i%8*3000); bytes.Contains(got,
				[]byte("secret")) || (err == nil) != bytes.Equal(got, want) {
				t.Errorf("%d: %d bytes, %.20q, %v", i, len(got), got, err)
			}
		})
	}
	all.Wait()
	close(stop)
	swapping.Wait()
	if good < 20 {
		t.Errorf("only %d downloads ended well: %v", good, bad)
	}
	t.Logf("%d ended well, others with %v", good, bad)
}
