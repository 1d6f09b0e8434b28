// MessageForm: in which form a model's chat template wants what an assistant called, and what a
// user said in several parts.
//
// Templates of one meaning were written for different callers: one prints a call only where there
// is no text beside it, another joins the arguments to a text and fails at an object. In the wrong
// form a call is missing from the prompt, or the prompt is refused. Some print the parts of a
// content one behind the other, which no line break between them would be.
//
// Thread:     pure functions and values.
// Memory:     none.
// Cost:       message_form_of renders a conversation of three messages a few times.
// Not here:   reading messages (chat_messages.cc), how calls look in answers (tool_calls).
#pragma once

namespace stemma {

class ChatTemplate;

struct MessageForm {
  bool silence_is_null = false;     // content of a message that only calls: null, else ""
  bool calls_stand_alone = false;   // beside a text they are not printed
  bool arguments_are_text = false;  // as the client sent them, else as an object
  bool short_ids = false;           // of calls; others are refused (call_ids.h)
  bool user_parts_stay = false;     // the template joins them; else they are one text, by lines
};

// The form in which `chat` prints calls and parts, found by trying; the default where it prints
// them in none.
MessageForm message_form_of(const ChatTemplate& chat);

}  // namespace stemma
