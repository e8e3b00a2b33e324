package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/caponier-mcp/caponier/host/approval"
	"github.com/caponier-mcp/caponier/host/plaintext"
	"github.com/spf13/cobra"
)

// decider wraps what a sub-command of approvals does, so that it gets the open approvals.
type decider func(do func(*cobra.Command, *approver, []string) error) func(*cobra.Command,
	[]string) error

func approvalsCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "approvals",
		Short: "See and decide the calls that wait for a person",
		Long: "See and decide the calls that wait for a person. Who decides is the account that " +
			"runs this, or --as one of [approval] approvers.\n" +
			"Whoever can run this as that account can approve: do not give an agent a shell there.",
	}
	as := cmd.PersistentFlags().
		String("as", "", "decide as `NAME`, one of [approval] approvers (default: the account "+
			"that runs this)")
	at := func(do func(*cobra.Command, *approver, []string) error) func(*cobra.Command,
		[]string) error {
		return func(cmd *cobra.Command, args []string) error {
			log := slog.New(slog.DiscardHandler) // what happens is printed
			if cmd.Name() == "serve" {
				log = slog.Default()
			}
			d, err := g.approver(*as, log)
			if err != nil {
				return err
			}
			defer d.Close()
			return failed(do(cmd, d, args))
		}
	}
	cmd.AddCommand(
		approvalsList(g, at),
		approvalsShow(g, at),
		approvalsDecide(g, at, "approve ID", "Let this one call happen, once", true),
		approvalsDecide(g, at, "deny ID",
			"Refuse this call, or take back an approval that was not used", false),
		sessionsCommand(g, at),
		approvalsWatch(g, at),
		approvalsLink(at),
		approvalsServe(at),
	)
	return cmd
}

func approvalsDecide(g *global, at decider, use, short string, yes bool) *cobra.Command {
	note := ""
	c := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: at(func(cmd *cobra.Command, d *approver, args []string) error {
			r, err := d.Decide(
				cmd.Context(),
				approval.Verdict{Request: args[0], Approve: yes, By: d.who,
					Channel: approval.Terminal, Note: note},
			)
			if err != nil {
				return err
			}
			if g.json {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(r)
			}
			until := map[bool]string{true: "usable once until",
				false: "stays refused until"}[yes]
			fmt.Fprintf(cmd.OutOrStdout(), "%s by %s: %s of %s, %s %s\n", r.State, r.By,
				plaintext.Show(r.Tool), plaintext.Show(r.Principal), until,
				r.Expires.UTC().Format("15:04:05 MST"))
			return nil
		}),
	}
	c.Flags().
		StringVar(&note, "note", "", "`TEXT` to keep with the answer; a denied caller sees it")
	return c
}

func approvalsList(g *global, at decider) *cobra.Command {
	var all bool
	list := &cobra.Command{
		Use:   "list",
		Short: "List what waits",
		Args:  cobra.NoArgs,
		RunE: at(func(cmd *cobra.Command, d *approver, _ []string) error {
			state := approval.Waiting
			if all {
				state = ""
			}
			rs, err := d.Requests(cmd.Context(), "", state)
			if err != nil {
				return err
			}
			return printRequests(cmd.OutOrStdout(), rs, g.json)
		}),
	}
	list.Flags().BoolVar(&all, "all", false, "also what was decided and has not expired")
	return list
}

func approvalsShow(g *global, at decider) *cobra.Command {
	return &cobra.Command{
		Use: "show ID",
		Short: "Show all of one request: who asks, the arguments, what would run, and why it " +
			"waits",
		Args: cobra.ExactArgs(1),
		RunE: at(func(cmd *cobra.Command, d *approver, args []string) error {
			rs, err := d.Requests(cmd.Context(), args[0], "")
			if err != nil {
				return err
			}
			if args[0] == "" || len(rs) != 1 {
				return approval.ErrNone
			}
			if g.json {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(rs[0])
			}
			return rs[0].Print(cmd.OutOrStdout())
		}),
	}
}

func approvalsWatch(g *global, at decider) *cobra.Command {
	return &cobra.Command{
		Use:   "watch",
		Short: "Show requests as they come and as they are decided, until interrupted",
		Args:  cobra.NoArgs,
		RunE: at(func(cmd *cobra.Command, d *approver, _ []string) error {
			return watch(cmd.Context(), cmd.OutOrStdout(), d.Requests, g.json)
		}),
	}
}

func approvalsLink(at decider) *cobra.Command {
	return &cobra.Command{
		Use:   "link",
		Short: "Make a one-time link that signs in on the web page; whoever has it can approve",
		Args:  cobra.NoArgs,
		RunE: at(func(cmd *cobra.Command, d *approver, _ []string) error {
			link, until, err := d.Link(d.who)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), link)
			fmt.Fprintf(cmd.ErrOrStderr(), "signs in %s, once, until %s\n", d.who,
				until.UTC().Format("15:04:05 MST"))
			return nil
		}),
	}
}

func approvalsServe(at decider) *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Serve the web page alone ([approval] listen), without MCP",
		Args:  cobra.NoArgs,
		RunE: at(func(cmd *cobra.Command, d *approver, _ []string) error {
			if d.cfg.Approval.Listen == "" || !d.Listed() {
				return fmt.Errorf(
					"%s: set listen and approvers in [approval]: where the page is, and who "+
						"may sign in",
					d.cfg.File)
			}
			l, err := net.Listen("tcp", d.cfg.Approval.Listen)
			if err != nil {
				return err
			}
			// A service manager keeps what is printed here, so no link is: whoever reads it
			// could approve.
			fmt.Fprintf(cmd.ErrOrStderr(),
				"approvals are at http://%s/approvals; sign in with: caponier approvals link "+
					"--as NAME\n",
				l.Addr())
			notify("READY=1")
			defer notify("STOPPING=1")
			return d.Serve(cmd.Context(), l)
		}),
	}
}

func printRequests(w io.Writer, rs []approval.Request, asJSON bool) error {
	if asJSON {
		if rs == nil {
			rs = []approval.Request{}
		}
		return json.NewEncoder(w).Encode(rs)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tSTATE\tASKED BY\tTOOL\tTARGET\tEXPIRES")
	for _, r := range rs {
		fmt.Fprintln(t, strings.Join(cells(r), "\t"))
	}
	return t.Flush()
}

func cells(r approval.Request) []string {
	state := r.State
	if r.By != "" {
		state += " by " + r.By
	}
	target := ""
	if d, err := r.Read(); err == nil {
		target = d.Target()
	}
	return []string{r.ID, plaintext.Show(state), plaintext.Show(r.Principal),
		plaintext.Show(r.Tool), plaintext.Show(target), r.Expires.UTC().Format("15:04:05 MST")}
}

// watch prints each request when it comes and whenever it changes. It ends with ctx, without an
// error.
func watch(ctx context.Context, w io.Writer,
	list func(ctx context.Context, id, state string) ([]approval.Request, error),
	asJSON bool) error {
	seen := map[string]string{}
	for {
		rs, err := list(ctx, "", "")
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		now := map[string]string{} // what has expired is forgotten
		for i := len(rs) - 1; i >= 0; i-- {
			r := rs[i]
			if now[r.ID] = r.State; seen[r.ID] == r.State {
				continue
			}
			if asJSON {
				if err := json.NewEncoder(w).Encode(r); err != nil {
					return err
				}
			} else {
				fmt.Fprintf(w, "%s  %s\n", time.Now().UTC().Format("15:04:05"),
					strings.Join(cells(r), "  "))
			}
		}
		for id, state := range seen {
			if _, still := now[id]; !still && !asJSON && state == approval.Waiting {
				fmt.Fprintf(w, "%s  %s  expired unanswered\n", time.Now().UTC().Format("15:04:05"),
					id)
			}
		}
		seen = now
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// sessionsCommand shows and ends the sessions of the approval page.
func sessionsCommand(g *global, at decider) *cobra.Command {
	cmd := &cobra.Command{Use: "sessions", Short: "List and end the sessions of the approval page"}
	cmd.AddCommand(&cobra.Command{
		Use: "list", Short: "List who is signed in", Args: cobra.NoArgs,
		RunE: at(func(cmd *cobra.Command, d *approver, _ []string) error {
			list, err := d.Sessions(cmd.Context())
			if err != nil {
				return err
			}
			if g.json {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(append([]approval.Session{},
					list...))
			}
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "ID\tNAME\tSINCE\tUNTIL")
			for _, s := range list {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", s.ID, s.Name,
					s.Created.UTC().Format(time.DateTime), s.Expires.UTC().Format(time.DateTime))
			}
			return t.Flush()
		}),
	})
	var name string
	var all bool
	end := &cobra.Command{
		Use:   "end [ID]",
		Short: "End a session, those of --name, or --all",
		Args:  cobra.MaximumNArgs(1),
		RunE: at(func(cmd *cobra.Command, d *approver, args []string) error {
			id := strings.Join(args, "")
			if id == "" && name == "" && !all {
				return errors.New("name the session's ID, --name NAME or --all")
			}
			n, err := d.EndSessions(cmd.Context(), id, name)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d sessions ended\n", n)
			if n == 0 && !all {
				return errors.New("there is no such session; `caponier approvals sessions list` " +
					"shows them")
			}
			return nil
		}),
	}
	end.Flags().StringVar(&name, "name", "", "the sessions of this `NAME`")
	end.Flags().BoolVar(&all, "all", false, "every session")
	cmd.AddCommand(end)
	return cmd
}
