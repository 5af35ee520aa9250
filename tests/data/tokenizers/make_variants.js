// Writes variants.json: what Hugging Face tokenizers do for the components and options that the two
// golden tokenizers don't use. Needs the npm package `tokenizers` (0.23.2 when it was last run):
//   cd /tmp && npm install tokenizers && NODE_PATH=/tmp/node_modules node make_variants.js
const {Tokenizer} = require('tokenizers');
const fs = require('fs');
const path = require('path');

const read = (name) => JSON.parse(fs.readFileSync(path.join(__dirname, name + '.json'), 'utf8'));
const empty = {version: '1.0', truncation: null, padding: null, added_tokens: [], normalizer: null,
  pre_tokenizer: null, post_processor: null, decoder: null, model: {type: 'BPE', dropout: null,
  unk_token: '<unk>', continuing_subword_prefix: null, end_of_word_suffix: null, fuse_unk: false,
  byte_fallback: false, ignore_merges: false, vocab: {'<unk>': 0, 'a': 1, 'b': 2, 'ab': 3}, merges: [['a', 'b']]}};
const make = (patch) => Tokenizer.fromString(JSON.stringify({...empty, ...patch}));

const texts = ['', ' ', 'a', 'Hello world', '  two  spaces ', 'a\tb\n\nc \r\n d', 'x\u0085y\u00a0z\u2003w\u3000v\u180eu',
  "don't I'LL we'Ve \u017fo 'S", 'abc123 45.6 \u0663\u0664 \u00bd\u2460', 'na\u00efve e\u0301 \u00c5\u212b \ufb01 \uff21',
  'a\u0300\u0323b \u1e0b\u0323', '\u0130stanbul STRASSE \u1e9e \u03a3\u03a3', '\u4f60\u597d,\u4e16\u754c\u3002', '\ud83d\udc69\u200d\ud83d\ude80 \ud83e\udd80',
  'under_score-dash.dot$+<=>^`|~', '\u2581meta\u2581 \u2581\u2581x', 'a,b;;c--d', '\u0000\u0001', '\uac00\u1100\u1161 \u0939\u093f', 'tail   ',
  '   lead', 'a\u200db\u200cc', 'x\u00b2\u00be \u3001\u4e00\u3005\u309d', '\ufdfa \u2126 \u1d160', 'aaa', 'A-B--C---D', ',', ',,', ', ', '1,2', 'x\u2028y\u2029z'];

const space = {type: 'Metaspace', replacement: '\u2581', prepend_scheme: 'always', split: true};
const split = (pattern, behavior, invert = false) => ({type: 'Split', pattern, behavior, invert});
const behaviors = ['Removed', 'Isolated', 'MergedWithPrevious', 'MergedWithNext', 'Contiguous'];
const llama3 = read('llama3-style').pre_tokenizer.pretokenizers[0].pattern;

const normalizers = [
  ...['NFC', 'NFD', 'NFKC', 'NFKD', 'Lowercase', 'StripAccents', 'ByteLevel'].map((type) => ({type})),
  {type: 'Strip', strip_left: true, strip_right: true}, {type: 'Strip', strip_left: true, strip_right: false},
  {type: 'Strip', strip_left: false, strip_right: true}, {type: 'Prepend', prepend: '\u2581'},
  {type: 'Replace', pattern: {String: 'aa'}, content: 'b'}, {type: 'Replace', pattern: {String: ' '}, content: ''},
  {type: 'Replace', pattern: {Regex: '\\s+'}, content: ' '}, {type: 'Replace', pattern: {Regex: 'x*'}, content: '-'},
  {type: 'Replace', pattern: {Regex: ' {2,}'}, content: '_'}, {type: 'Replace', pattern: {Regex: '^.|\\p{L}$'}, content: '<>'},
  {type: 'Sequence', normalizers: [{type: 'NFD'}, {type: 'StripAccents'}, {type: 'Lowercase'}, {type: 'Prepend', prepend: '>'}]},
];
const preTokenizers = [
  space, {...space, prepend_scheme: 'first'}, {...space, prepend_scheme: 'never'}, {...space, split: false},
  {type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true},
  {type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true},
  {type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: false},
  {type: 'Whitespace'}, {type: 'WhitespaceSplit'}, {type: 'Digits', individual_digits: true},
  {type: 'Digits', individual_digits: false}, {type: 'CharDelimiterSplit', delimiter: 'a'},
  ...behaviors.map((behavior) => ({type: 'Punctuation', behavior})),
  ...behaviors.map((b) => split({String: ','}, b)), ...behaviors.map((b) => split({Regex: '[,-]'}, b)),
  ...behaviors.map((b) => split({Regex: '\\p{L}+'}, b, true)), ...behaviors.map((b) => split({Regex: 'x*'}, b)),
  split({Regex: '\\s+'}, 'Removed'), split({Regex: '[^\\s]+'}, 'Isolated'), split({Regex: '\\w+'}, 'Isolated'),
  split({Regex: '[\\w-]+'}, 'Isolated'), split({Regex: '\\W'}, 'Isolated'), split({Regex: '\\P{Han}'}, 'Isolated'), split({Regex: '[\\p{Hiragana}\\p{^L}]'}, 'Isolated'), split({Regex: '\\S\\d?'}, 'Isolated'),
  split({Regex: '(?i:s)'}, 'Isolated'), split({Regex: '(?i)s|l'}, 'Isolated'), split({Regex: '(?<=a).|.(?!b)'}, 'Isolated'),
  split({Regex: 'a++|\\p{Lu}|\\p{Nd}{1,2}'}, 'Isolated'), split({Regex: '\\p{Han}|[\\u4e00-\\u9fff]'}, 'Isolated'),
  split(llama3, 'Isolated'), split(llama3, 'Removed', true),
  {type: 'Sequence', pretokenizers: [{type: 'WhitespaceSplit'}, {...space, prepend_scheme: 'first'}]},
  {type: 'Sequence', pretokenizers: [split({String: ' '}, 'MergedWithNext'), {type: 'Digits', individual_digits: true},
    {type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false}]},
];
const strip = (start, stop) => ({type: 'Strip', content: ' ', start, stop});
const replace = {type: 'Replace', pattern: {String: '\u2581'}, content: ' '};
const sequence = (...decoders) => ({type: 'Sequence', decoders});
const decoders = [null, space, {...space, prepend_scheme: 'never'}, {type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true},
  {type: 'Fuse'}, {type: 'ByteFallback'}, replace, strip(1, 0), strip(0, 1), strip(2, 2),
  sequence(replace, {type: 'ByteFallback'}, {type: 'Fuse'}, strip(1, 0)), sequence(replace, {type: 'Fuse'}, strip(1, 1)),
  sequence(strip(1, 0), replace), sequence({type: 'Replace', pattern: {Regex: '[ab]+'}, content: '*'}, {type: 'Fuse'})];
const pieces = [[], ['a'], ['\u2581Hello', '\u2581world'], ['\u2581', '\u2581', 'x'], ['\u2581\u2581x\u2581', '\u2581y\u2581'],
  ['<0xE4>', '<0xBD>', '<0xA0>', 'a'], ['<0x41>', '<0x42>'], ['<0x4g>', '<0x41', '<0xff >'], ['a', '<0xC3>', 'b'], ['a', '<0xC3>', '<0xA9>'],
  ['\u0120Hello', '\u0120w\u00c3', '\u00b6rld'], ['\u00e2', '\u0122', 'x'], ['\u00e2\u0122', '\u00ff', 'a b'], ['\u4f60', '\u0120a'],
  ['   x', 'y   ', '   z   '], ['x  '], ['aabc', 'cab']];

const added = (id, content, flags) => ({id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: false, ...flags});
const tokenTexts = ['x<m>y', 'x <m> y', '<m><m>', '  <m>  <m>  ', 'x<m>', '<m>x', 'x_<m>', 'a<m>,', 'A<M>b', '<mm><m>m>', '<m', '\u00e9<m>\u00e9', '\u0301<m>',
  'a\u200d<m>', '\u24d0<m> \u24d0', ' \t\n<m>\u00a0z', '', '<m>', '<sp> a <sp>', 'zq Zq azq zqa ZQ, zq'];
const llama = read('llama3-style');
const gemma = read('gemma-style');
const extra = (base, list) => ({added_tokens: [...base.added_tokens, ...list]});
const model = (base, change) => ({model: {...base.model, ...change}});
const tokenizers = [
  ...[{}, {lstrip: true}, {rstrip: true}, {lstrip: true, rstrip: true}, {single_word: true}, {normalized: true}, {special: true}]
      .map((flags) => ({base: 'gemma-style', texts: tokenTexts, patch: extra(gemma, [added(2048, '<m>', flags), added(2049, '<mm>', {})])})),
  {base: 'gemma-style', texts: tokenTexts, patch: {...extra(gemma, [added(2048, '<M>', {normalized: true}), added(2049, 'zq', {normalized: true, single_word: true})]),
    normalizer: {type: 'Sequence', normalizers: [{type: 'Lowercase'}, {type: 'Replace', pattern: {String: ' '}, content: '\u2581'}]}}},
  {base: 'gemma-style', texts: tokenTexts, patch: {...extra(gemma, [added(2048, '<m>', {})]), normalizer: {type: 'Prepend', prepend: '\u2581'}}},
  {base: 'gemma-style', texts: tokenTexts, patch: {...extra(gemma, [added(2048, '<m>', {})]), normalizer: null, pre_tokenizer: {...space, prepend_scheme: 'first'}, decoder: space}},
  {base: 'gemma-style', texts: tokenTexts, patch: {...extra(gemma, [added(2048, '<m>', {})]), normalizer: null, pre_tokenizer: space, decoder: space}},
  {base: 'gemma-style', texts, patch: model(gemma, {ignore_merges: true})},
  {base: 'gemma-style', texts, patch: model(gemma, {merges: gemma.model.merges.map((m) => m.join(' '))})},
  {base: 'gemma-style', texts, patch: model(gemma, {byte_fallback: false, fuse_unk: true})},
  {base: 'gemma-style', texts, patch: model(gemma, {byte_fallback: false, fuse_unk: false})},
  {base: 'gemma-style', texts, patch: model(gemma, {byte_fallback: false, unk_token: null})},
  {base: 'gemma-style', texts, patch: {pre_tokenizer: null}},
  {base: 'gemma-style', texts, patch: {post_processor: {type: 'TemplateProcessing', single: [{SpecialToken: {id: '<bos>', type_id: 0}}, {Sequence: {id: 'A', type_id: 0}},
    {SpecialToken: {id: 'end', type_id: 0}}], pair: [{Sequence: {id: 'A', type_id: 0}}, {Sequence: {id: 'B', type_id: 1}}],
    special_tokens: {'<bos>': {id: '<bos>', ids: [2], tokens: ['<bos>']}, 'end': {id: 'end', ids: [5, 1], tokens: ['<end_of_turn>', '<eos>']}}}}},
  {base: 'llama3-style', texts, patch: model(llama, {ignore_merges: true})},
  {base: 'llama3-style', texts, patch: {normalizer: {type: 'NFC'}, pre_tokenizer: {type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true}}},
];

(async () => {
  const normalized = normalizers.map((config) => {
    const n = make({normalizer: config}).getNormalizer();
    return {config, cases: texts.map((text) => [text, n.normalizeString(text)])};
  });
  const cut = preTokenizers.map((config) => {
    const p = make({pre_tokenizer: config}).getPreTokenizer();
    return {config, cases: texts.map((text) => [text, p.preTokenizeString(text).map(([word]) => word)])};
  });
  const decoded = [];
  for (const config of decoders) {
    const vocab = {'<unk>': 0};
    for (const p of new Set(pieces.flat())) vocab[p] = Object.keys(vocab).length;
    const t = make({decoder: config, model: {...empty.model, vocab, merges: []}});
    const cases = [];
    // Hugging Face's Strip reads out of bounds where the text is shorter than what it may cut.
    const cuts = /"stop":[12]/.test(JSON.stringify(config));
    const usable = pieces.filter((list) => !cuts || (list.length > 0 && list.every((p) => p.length > 2)));
    for (const list of usable) cases.push([list, await t.decode(list.map((p) => vocab[p]), false)]);
    decoded.push({config, cases});
  }
  const whole = [];
  for (const {base, patch, texts} of tokenizers) {
    const t = Tokenizer.fromString(JSON.stringify({...read(base), ...patch}));
    const cases = [];
    for (const text of texts) {
      const ids = Array.from((await t.encode(text, null, {addSpecialTokens: true})).getIds());
      cases.push({text, ids, decoded: await t.decode(ids, true), decoded_all: await t.decode(ids, false)});
    }
    whole.push({base, patch: patch.model ? {model: diff(read(base).model, patch.model)} : patch, cases});
  }
  fs.writeFileSync(path.join(__dirname, 'variants.json'),
      JSON.stringify({normalizers: normalized, pre_tokenizers: cut, decoders: decoded, tokenizers: whole}, null, 1)
          .replace(/\[\s+([^[\]{}]*?)\s+\]/g, (all) => all.replace(/\n\s*/g, ' ')) + '\n');
})();

// The members of `after` that differ; merges in string form are said by "merges": "strings".
function diff(before, after) {
  const out = {};
  for (const key of Object.keys(after)) {
    if (JSON.stringify(before[key]) === JSON.stringify(after[key])) continue;
    out[key] = key === 'merges' ? 'strings' : after[key];
  }
  return out;
}
