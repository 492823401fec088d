<?php
$n = (int)$argv[1];
$a = [];
for ($i = 0; $i < $n; $i++)
    $a["k" . $i * 7919 % 1000003] = md5((string)$i);
ksort($a);
$hash = hash_init('sha1');
foreach ($a as $k => $v)
    hash_update($hash, $k . $v);
echo hash_final($hash), "\n";
$turned = array_map('strrev', $a);
echo count(array_filter($turned, fn($v) => $v[0] == 'a')), "\n";
unset($a);
$text = serialize($turned);
echo strlen($text), " ", md5($text), "\n";
echo unserialize($text) == $turned ? "same" : "another", "\n";
