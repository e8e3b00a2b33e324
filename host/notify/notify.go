// Package notify notifies people in chats and by mail that a call waits for them.
//
// A message has no arguments of the call, nothing that a model wrote, and no authority: it names
// the tool, the caller and where it acts, and links to the page, which asks for a sign-in. Text is
// sent in forms that the services do not read as markup.
package notify

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	tries    = 3
	sendTime = 10 * time.Second // of one try
	// maxSending bounds the messages to one service, so that one that hangs takes no other's place
	maxSending = 64
)

// Notifier sends messages to several services, independently. Its methods may be called
// concurrently. A nil Notifier sends nothing.
type Notifier struct {
	to      []target
	running context.Context
	stop    context.CancelFunc
	sending sync.WaitGroup
	pause   time.Duration // before the second try, and twice as long before the third
}

type target struct {
	name string
	service
	room chan struct{} // bounds messages in flight
}

// New returns a notifier of valid options, nil without any.
func New(all []Options) *Notifier {
	if len(all) == 0 {
		return nil
	}
	n := &Notifier{pause: time.Second}
	n.running, n.stop = context.WithCancel(context.Background())
	for i, o := range all {
		n.to = append(n.to, target{fmt.Sprintf("%s (approval.notify[%d])", o.Kind, i), o.open(),
			make(chan struct{}, maxSending)})
	}
	return n
}

// Tell sends a notice to each service in the background, and tries at most three times. It calls
// Failed with the name of each service that did not accept it; the error contains no secret. If 64
// messages to a service are pending, it fails at once.
func (n *Notifier) Tell(notice Notice, failed func(service string, err error)) {
	if n == nil || n.running.Err() != nil {
		return
	}
	for _, t := range n.to {
		select {
		case t.room <- struct{}{}:
		default:
			failed(t.name, errors.New("too many messages are pending"))
			continue
		}
		n.sending.Go(func() {
			defer func() { <-t.room }()
			if err := n.deliver(t, notice); err != nil {
				failed(t.name, err)
			}
		})
	}
}

// Wait returns when nothing is on its way any more.
func (n *Notifier) Wait() {
	if n != nil {
		n.sending.Wait()
	}
}

// Close cancels pending messages.
func (n *Notifier) Close() {
	if n != nil {
		n.stop()
		n.sending.Wait()
	}
}

func (n *Notifier) deliver(t target, notice Notice) (err error) {
	for try := range tries {
		ctx, cancel := context.WithTimeout(n.running, sendTime)
		err = t.send(ctx, notice)
		cancel()
		if err == nil || try == tries-1 || errors.As(err, new(refused)) {
			return err
		}
		select {
		case <-n.running.Done():
			return err
		case <-time.After(n.pause << try):
		}
	}
	return err
}
