package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
)

type object = map[string]any

// chat posts JSON that a service's form makes of a notice.
type chat struct {
	method, url, token string
	body               func(Notice) object
	path               func(Notice) string // behind url; nil for nothing
}

func (c chat) send(ctx context.Context, n Notice) error {
	body, err := json.Marshal(c.body(n))
	if err != nil {
		return err
	}
	at := c.url
	if c.path != nil {
		at += c.path(n)
	}
	req, err := http.NewRequestWithContext(ctx, c.method, at, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return do(req)
}

// slack is an incoming webhook (docs.slack.dev, Block Kit). A plain_text object contains no markup.
func slack(n Notice) object {
	blocks := []object{{"type": "section", "text": object{"type": "plain_text",
		"text": n.text(), "emoji": false}}}
	if n.Link != "" {
		blocks = append(blocks, object{"type": "actions", "elements": []object{{"type": "button",
			"text": object{"type": "plain_text", "text": "Read and answer"}, "url": n.Link}}})
	}
	return object{"blocks": blocks, "text": "A call waits for approval", "unfurl_links": false,
		"unfurl_media": false}
}

// teams is a workflow's webhook, which takes Adaptive Cards. A TextRun contains no Markdown.
func teams(n Notice) object {
	card := object{"$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
		"type": "AdaptiveCard", "version": "1.4", "body": []object{{"type": "RichTextBlock",
			"inlines": []object{{"type": "TextRun", "text": n.text()}}}}}
	if n.Link != "" {
		card["actions"] = []object{{"type": "Action.OpenUrl", "title": "Read and answer",
			"url": n.Link}}
	}
	return object{"type": "message", "attachments": []object{{
		"contentType": "application/vnd.microsoft.card.adaptive", "content": card}}}
}

// telegram is sendMessage of the Bot API without a parse mode.
func telegram(chatID string) func(Notice) object {
	return func(n Notice) object {
		m := object{"chat_id": chatID, "text": n.text() + "\n" + n.open(),
			"link_preview_options": object{"is_disabled": true}, "protect_content": true}
		// a button with a URL must be https or tg
		if strings.HasPrefix(n.Link, "https://") {
			m["text"] = n.text()
			m["reply_markup"] = object{"inline_keyboard": [][]object{{{"text": "Read and answer",
				"url": n.Link}}}}
		}
		return m
	}
}

// matrix is m.room.message of the client-server API, section 11.2. The transaction is the
// request's, so that a message that is sent twice is one.
func matrix(n Notice) object {
	return object{"msgtype": "m.text", "body": n.text() + "\n" + n.open()}
}

func matrixPath(room string) func(Notice) string {
	return func(n Notice) string {
		return "/_matrix/client/v3/rooms/" + url.PathEscape(room) + "/send/m.room.message/" +
			url.PathEscape("caponier-"+n.key())
	}
}

// ntfy publishes as JSON to the server (docs.ntfy.sh/publish). Markdown is off by default.
func ntfy(topic string) func(Notice) object {
	return func(n Notice) object {
		m := object{"topic": topic, "title": "A call waits for approval", "message": n.text(),
			"priority": 4, "tags": []string{"lock"}}
		if n.Link != "" {
			m["click"] = n.Link
		}
		return m
	}
}
