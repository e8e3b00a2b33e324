package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os/user"
	"strings"
	"sync"
	"time"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/config"
	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/caponier-mcp/caponier/host/systemd"
	"github.com/caponier-mcp/caponier/host/terms"
	"github.com/spf13/cobra"
)

func approvalsCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "approvals",
		Short: "See and decide the calls that wait for a person",
		Long: "See and decide the calls that wait for a person. The approver is the account that " +
			"runs this\ncommand, or --as one of [approval] approvers. Every program of that " +
			"account can approve:\ndo not give an agent a shell there.",
	}
	d := &desk{}
	cmd.PersistentFlags().StringVar(&d.who, "as", "", "decide as `NAME`, one of [approval] "+
		"approvers (default: the account that runs this)")
	cmd.AddCommand(d.list(g), d.show(g), d.watch(g), d.answer(g, true), d.answer(g, false),
		d.sessions(g), d.link(g), d.servePage(g))
	return cmd
}

// desk is where an approver sees and decides requests. It connects to no node.
type desk struct {
	*verb
	*approval.Approvals
	who  string
	cfg  *config.Config
	room watchroom
	kept state
}

// role says what a subcommand does at the desk.
type role int

const (
	looks   role = iota // no journal is begun: without one, no answer is taken
	answers             // what happens is printed
	serves              // what happens is logged
)

// at opens the desk for do.
func (d *desk) at(g *global, r role, do func() error) func(*cobra.Command, []string) error {
	return g.does(func(v *verb) error {
		c, err := d.open(v)
		if err != nil {
			return usage(err)
		}
		s, err := openStore(c)
		if err != nil {
			return err
		}
		defer s.Close()
		if r != serves {
			c.Approval.Log = slog.New(slog.DiscardHandler)
		}
		var journal terms.Journal
		if r != looks {
			j, closeJournal, err := openJournal(c)
			if err != nil {
				return fmt.Errorf("an answer cannot be written to the journal, so it does not "+
					"count: %w", err)
			}
			defer closeJournal()
			journal = j
		}
		c.Approval.Journal, c.Approval.Console, d.kept = journal, d.room.serve, s
		if d.Approvals, err = approval.New(c.Approval, s); err != nil {
			return usage(err)
		}
		defer d.Close()
		return do()
	})
}

// open reads the configuration and finds out who decides.
func (d *desk) open(v *verb) (c *config.Config, err error) {
	if c, err = v.load(); err != nil {
		return nil, err
	}
	d.verb, d.cfg = v, c
	if d.who == "" {
		u, err := user.Current()
		if err != nil {
			return nil, fmt.Errorf("the account that runs this has no name (%w): use --as NAME",
				err)
		}
		d.who = u.Username
	} else if len(c.Approval.Approvers) == 0 {
		return nil, fmt.Errorf("%s: --as %s: approvers in [approval] is empty, so only the "+
			"account that runs this may approve; list the names there", c.File, d.who)
	}
	return c, nil
}

func (d *desk) list(g *global) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the requests that wait",
		Args:  cobra.NoArgs,
		RunE: d.at(g, looks, func() error {
			state := approval.Waiting
			if all {
				state = ""
			}
			rs, err := d.Requests(d.ctx, "", state)
			if err != nil {
				return err
			}
			return list(d.verb, rs, "ID|STATE|ASKED BY|TOOL|TARGET|EXPIRES", cells)
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "also those that are decided and have not expired")
	return cmd
}

func cells(r approval.Request) []string {
	state, target := r.State, ""
	if r.By != "" {
		state += " by " + r.By
	}
	if d, err := r.Read(); err == nil {
		target = d.Target()
	}
	return []string{r.ID, plaintext.Show(state), plaintext.Show(r.Principal),
		plaintext.Show(r.Tool), plaintext.Show(target), clock(r.Expires)}
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05 MST") }

func (d *desk) show(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show one request in full: caller, arguments, what would run, and why it waits",
		Args:  cobra.ExactArgs(1),
		RunE: d.at(g, looks, func() error {
			rs, err := d.Requests(d.ctx, d.args[0], "")
			if err != nil {
				return err
			}
			if d.args[0] == "" || len(rs) != 1 {
				return approval.ErrNone
			}
			if d.json {
				return plaintext.JSON(d.out, rs[0])
			}
			return rs[0].Print(d.out)
		}),
	}
}

// watch prints each request when it comes and whenever it changes.
func (d *desk) watch(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "watch",
		Short: "Show requests as they come and as they are decided, until interrupted",
		Args:  cobra.NoArgs,
		RunE: d.at(g, looks, func() error {
			seen := map[string]string{} // states by id
			for d.ctx.Err() == nil {
				rs, err := d.Requests(d.ctx, "", "")
				if err != nil && d.ctx.Err() == nil {
					return err
				}
				if err == nil {
					seen, err = d.news(rs, seen)
				}
				if err != nil {
					return err
				}
				select {
				case <-d.ctx.Done():
				case <-time.After(500 * time.Millisecond):
				}
			}
			return nil
		}),
	}
}

// news prints what has changed since the states were seen, oldest first, and returns the states
// now.
func (d *desk) news(rs []approval.Request, seen map[string]string) (map[string]string, error) {
	now := map[string]string{}
	at := time.Now().UTC().Format("15:04:05")
	for i := len(rs) - 1; i >= 0; i-- {
		r := rs[i]
		if now[r.ID] = r.State; seen[r.ID] == r.State {
			continue
		}
		err := d.print(r, func(w io.Writer) {
			fmt.Fprintf(w, "%s  %s\n", at, strings.Join(cells(r), "  "))
		})
		if err != nil {
			return nil, err
		}
	}
	for id, state := range seen {
		if now[id] == "" && state == approval.Waiting && !d.json {
			fmt.Fprintf(d.out, "%s  %s  expired unanswered\n", at, id)
		}
	}
	return now, nil
}

// answer returns the subcommand approve, or deny.
func (d *desk) answer(g *global, yes bool) *cobra.Command {
	note, ticket := "", ""
	use, short, until := "deny ID", "Refuse this call, or take back an approval that was not used",
		"stays refused until"
	if yes {
		use, short, until = "approve ID", "Allow this one call, once", "usable once until"
	}
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1),
		RunE: d.at(g, answers, func() error {
			r, err := d.Decide(d.ctx, approval.Verdict{Request: d.args[0], Approve: yes, By: d.who,
				Channel: approval.Terminal, Ticket: ticket, Note: note})
			if err != nil {
				return err
			}
			defer d.Told(d.ctx)
			return d.print(r, func(w io.Writer) {
				if yes && r.State == approval.Waiting {
					fmt.Fprintf(w, "%s said yes, %d of %d: %s of %s still waits for another "+
						"person, until %s\n", plaintext.Show(d.who), len(r.Answers), r.Need,
						plaintext.Show(r.Tool), plaintext.Show(r.Principal), clock(r.Expires))
					return
				}
				fmt.Fprintf(w, "%s by %s: %s of %s, %s %s\n", r.State, r.By,
					plaintext.Show(r.Tool), plaintext.Show(r.Principal), until, clock(r.Expires))
			})
		}),
	}
	cmd.Flags().StringVar(&note, "note", "", "`TEXT` to keep with the answer, the reason of a "+
		"yes; a denied caller sees it")
	if yes {
		cmd.Flags().StringVar(&note, "reason", "", "same as --note")
		cmd.Flags().StringVar(&ticket, "ticket", "", "`ID` of the ticket that the site's policy "+
			"wants with a yes")
	}
	return cmd
}

func (d *desk) link(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "link",
		Short: "Print a link that signs in on the web page, once; anyone with the link can approve",
		Args:  cobra.NoArgs,
		RunE: d.at(g, looks, func() error {
			link, until, err := d.Link(d.ctx, d.who)
			if err != nil {
				return err
			}
			fmt.Fprintf(d.say, "signs in %s, once, until %s\n", d.who, clock(until))
			_, err = fmt.Fprintln(d.out, link)
			return err
		}),
	}
}

func (d *desk) servePage(g *global) *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Serve the web page alone ([approval] listen), without MCP",
		Args:  cobra.NoArgs,
		RunE: d.at(g, serves, func() error {
			if d.cfg.Approval.Listen == "" || !d.Listed() {
				return fmt.Errorf("%s: set listen and approvers in [approval]: the address of "+
					"the page, and the approvers who may sign in", d.cfg.File)
			}
			l, err := net.Listen("tcp", d.cfg.Approval.Listen)
			if err != nil {
				return err
			}
			ctx, stop := context.WithCancel(d.ctx)
			var work sync.WaitGroup
			defer work.Wait()
			defer stop()
			err = d.room.open(ctx, d.cfg, d.kept, func(ctx context.Context,
				do func(context.Context)) {
				work.Go(func() { do(ctx) })
			})
			if err != nil {
				return errors.Join(err, l.Close())
			}
			// A service manager keeps what is printed here, so it must be no link.
			fmt.Fprintf(d.say, "approvals are at http://%s/approvals; sign in with: caponier "+
				"approvals link --as NAME\n", l.Addr())
			systemd.Notify("READY=1")
			defer systemd.Notify("STOPPING=1")
			return d.Serve(d.ctx, l)
		}),
	}
}

func (d *desk) sessions(g *global) *cobra.Command {
	show := &cobra.Command{
		Use: "list", Short: "List the sessions", Args: cobra.NoArgs,
		RunE: d.at(g, looks, func() error {
			all, err := d.Sessions(d.ctx)
			if err != nil {
				return err
			}
			return list(d.verb, all, "ID|NAME|SINCE|UNTIL", func(s approval.Session) []string {
				return []string{s.ID, s.Name, s.Created.UTC().Format(time.DateTime),
					s.Expires.UTC().Format(time.DateTime)}
			})
		}),
	}
	var name string
	var all bool
	end := &cobra.Command{
		Use:   "end [ID]",
		Short: "End a session, those of --name, or --all",
		Args:  cobra.MaximumNArgs(1),
		RunE: d.at(g, looks, func() error {
			id := strings.Join(d.args, "")
			if id == "" && name == "" && !all {
				return errors.New("name the session's ID, --name NAME or --all")
			}
			n, err := d.EndSessions(d.ctx, id, name)
			if err != nil {
				return err
			}
			fmt.Fprintf(d.out, "%d sessions ended\n", n)
			if n == 0 && !all {
				return errors.New("there is no such session; `caponier approvals sessions list` " +
					"lists them")
			}
			return nil
		}),
	}
	end.Flags().StringVar(&name, "name", "", "the sessions of this `NAME`")
	end.Flags().BoolVar(&all, "all", false, "every session")
	return group("sessions", "List and end the sessions of the approval page", show, end)
}
