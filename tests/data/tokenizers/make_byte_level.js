// Writes byte_level.json, in the form of variants.json: what Hugging Face tokenizers do with the byte-level
// expressions and options of llama 3, qwen 2 and 3, gpt-oss (o200k), GPT-2 and mistral's newer files, over the
// vocabulary of llama3-style.json. Needs the npm package `tokenizers`, as make_variants.js does:
//   cd /tmp && npm install tokenizers && NODE_PATH=/tmp/node_modules node make_byte_level.js
const {Tokenizer} = require('tokenizers');
const fs = require('fs');
const path = require('path');

const base = JSON.parse(fs.readFileSync(path.join(__dirname, 'llama3-style.json'), 'utf8'));
const contractions = "'s|'t|'re|'ve|'m|'ll|'d";
const patterns = {
  llama3: `(?i:${contractions})|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`,
  qwen: `(?i:${contractions})|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`,
  qwenMarks: `(?i:${contractions})|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`,
  o200k: `[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:${contractions})?|` +
      `[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:${contractions})?|` +
      `\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`,
  tekken: `[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|` +
      `[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|` +
      `\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`,
};
const texts = ['', ' ', 'Hello world', "I'm we'RE they'LL it'S can't O'Brien'd 'tis", 'helloWorld HTTPServer iPhone XMLhttp aB Ab AB',
  '1234567 12 3.14159 1,000,000', 'a/b//c.txt https://x.org/?q=1&r=2', '  lead and   gaps  \n\n  next\r\n\r\nlast \t\n', '\n\n\nx\n \n y',
  'na\u00efve e\u0301te\u0301 \u00c5ngstr\u00f6m', '\u4f60\u597d\uff0c\u4e16\u754c\u3002 \ud55c\uad6d\uc5b4 \u65e5\u672c', '\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0939\u093f\u0928\u094d\u0926\u0940',
  '\ud83d\udc69\u200d\ud83d\ude80 \ud83e\udd80!', 'x\u00a0y\u2003z\u3000w', 'foo_bar(baz)[0] += {"k": -1};\n\treturn x\n}', '\u01c5 \u02b0 \u2160\u2461\u00bd \u0663', '###/\n---\n***', 'tail   ',
  '<|eot_id|> <|eot_id', 'don\u2019t \u017fo', '\u0000\u0001\u007f', 'ONE two THREE\'s'];

const level = {type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false};
const split = (regex) => ({type: 'Split', pattern: {Regex: regex}, behavior: 'Isolated', invert: false});
const sequence = (...list) => ({type: 'Sequence', pretokenizers: list});
const preTokenizers = [
  ...Object.values(patterns).map((p) => sequence(split(p), level)),
  {...level, use_regex: true}, {...level, use_regex: true, add_prefix_space: true},
  sequence({type: 'Digits', individual_digits: true}, {...level, use_regex: true}),
  sequence({type: 'Punctuation', behavior: 'Contiguous'}, {...level, use_regex: true}, {type: 'Digits', individual_digits: true}),
  sequence(split(patterns.o200k), {...level, add_prefix_space: true}),
  {type: 'Split', pattern: {Regex: patterns.qwen}, behavior: 'Removed', invert: true},
];
const bos = {SpecialToken: {id: '<|begin_of_text|>', type_id: 0}}, eot = {SpecialToken: {id: '<|eot_id|>', type_id: 0}};
const a = {Sequence: {id: 'A', type_id: 0}}, b = {Sequence: {id: 'B', type_id: 1}};
const specials = {'<|begin_of_text|>': {id: '<|begin_of_text|>', ids: [0], tokens: ['<|begin_of_text|>']},
  '<|eot_id|>': {id: '<|eot_id|>', ids: [1], tokens: ['<|eot_id|>']}};
const template = (single, pair) => ({type: 'TemplateProcessing', single, pair, special_tokens: specials});
const offsets = {type: 'ByteLevel', add_prefix_space: true, trim_offsets: false, use_regex: true};
const patches = [
  {pre_tokenizer: sequence(split(patterns.qwen), level), normalizer: {type: 'NFC'}, post_processor: offsets},
  {pre_tokenizer: sequence(split(patterns.qwenMarks), level), normalizer: {type: 'NFC'}},
  {pre_tokenizer: sequence(split(patterns.o200k), level), post_processor: {...offsets, use_regex: false}},
  {pre_tokenizer: sequence(split(patterns.tekken), level)},
  {pre_tokenizer: {...level, use_regex: true}},
  {post_processor: {type: 'Sequence', processors: [offsets, template([bos, a], [bos, a, bos, b])]}, model: {...base.model, ignore_merges: true}},
  {post_processor: template([bos, a, eot], [bos, a, eot, b, eot])},
];

(async () => {
  const empty = {...base, added_tokens: [], post_processor: null};
  const cut = preTokenizers.map((config) => {
    const p = Tokenizer.fromString(JSON.stringify({...empty, pre_tokenizer: config})).getPreTokenizer();
    return {config, cases: texts.map((text) => [text, p.preTokenizeString(text).map(([word]) => word)])};
  });
  const whole = [];
  for (const patch of patches) {
    const t = Tokenizer.fromString(JSON.stringify({...base, ...patch}));
    const cases = [];
    for (const text of texts) {
      const ids = Array.from((await t.encode(text, null, {addSpecialTokens: true})).getIds());
      cases.push({text, ids, decoded: await t.decode(ids, true), decoded_all: await t.decode(ids, false)});
    }
    whole.push({base: 'llama3-style', patch: patch.model ? {...patch, model: {ignore_merges: true}} : patch, cases});
  }
  fs.writeFileSync(path.join(__dirname, 'byte_level.json'), JSON.stringify({pre_tokenizers: cut, tokenizers: whole}, null, 1)
      .replace(/\[\s+([^[\]{}]*?)\s+\]/g, (all) => all.replace(/\n\s*/g, ' ')) + '\n');
})();
